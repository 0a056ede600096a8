"""Drivers: they answer the requests of the protocol's generators, blocking or on asyncio."""
