"""The comfortable layer: declare agents and actions, open stores, run and resume."""
