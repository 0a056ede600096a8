"""A BabyAGI-style loop: take a task, let a model use a tool, note the result, add tasks, and mail a report at the end.

    python -m indelible.testing.service --port 8025 --ledger world.jsonl      # a fake post office
    INDELIBLE_WORLD=http://127.0.0.1:8025 indelible run examples/sync_tool_agent.py:agent "Compare tea suppliers"

Kill it at any moment and run the last line again with the run's id (`--run-id`). No answer is paid for twice, no task
is lost, and the report is not sent twice: after a crash the post office is asked for its Message-ID.
"""

import json
import os
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import indelible as ind

TIMEOUT_S = 30.0
CATALOGUE = {"prices": "Acme 12, Borax 9, Cumulus 15", "delivery": "Acme 2 days, Borax 9 days, Cumulus 1 day"}


def ask(method: str, path: str, body: Any = None, key: str = "") -> Any:
    """One request to the service. It raises `DidNotHappen` for the one answer that proves that nothing was done."""
    with closing(HTTPConnection(urlsplit(os.environ["INDELIBLE_WORLD"]).netloc, timeout=TIMEOUT_S)) as connection:
        headers = {"Idempotency-Key": key} if key else {}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status == 429:
            raise ind.DidNotHappen("the service is busy")
        if answer.status >= 400:
            raise OSError(f"the service answered {answer.status}")  # before or after it did it? Nobody knows
        return json.loads(content)


@ind.action
def complete(prompt: str) -> str:
    """Stands for a model: it asks for a tool, or answers. Repeatable: its answer is kept, so it is paid for once."""
    ind.usage(usd=0.003)
    topic = next((topic for topic in CATALOGUE if topic in prompt), "")
    if prompt.startswith("plan"):
        return "\n".join(f"look up {topic}" for topic in CATALOGUE)
    return (
        f"TOOL {topic}" if topic and "found:" not in prompt else f"In short: {prompt.rpartition('found:')[2].strip()}"
    )


@ind.action
def search(topic: str) -> str:
    """The tool: harmless to repeat, and slow, so its result is kept."""
    return CATALOGUE[topic]


def in_outbox(to: str, text: str, *, key: str) -> Any:
    """The probe: a read-only question that may be asked any number of times."""
    found = ask("GET", "/mails?" + urlencode({"message_id": f"<{key}@desk>"}))["mails"]
    return ind.happened(found[0]["id"]) if found else ind.did_not_happen()


@ind.action(effect="irreversible", probe=in_outbox, fails_cleanly=(ConnectionRefusedError,))
def send_mail(to: str, text: str, *, key: str = "") -> str:
    """The key makes the Message-ID, by which the probe finds the mail. Where the post office takes a key, send it too:
    a request that is still on its way when the probe looks is covered by nothing else."""
    return str(ask("POST", "/mails", {"to": to, "text": text, "message_id": f"<{key}@desk>"}, key)["id"])


class Notebook(ind.State):
    tasks: ind.Queue[str]
    findings: ind.Log[str]


@ind.agent(state=Notebook)
def agent(run: ind.Run[Notebook]) -> None:
    """One task, and in the last cycle the report."""
    state = run.state
    if not state.tasks:
        run.finish("no report: it was given up")
        return
    task = state.tasks.take()
    if task == "report":
        run.finish(send_mail("you@example.org", "\n".join(state.findings)))
        return
    answer = complete(task)
    if answer.startswith("TOOL "):
        answer = complete(f"{task}; found: {search(answer.removeprefix('TOOL '))}")
    if task.startswith("plan"):
        state.tasks.extend(answer.splitlines())
        state.tasks.append("report", priority=9)
    else:
        state.findings.append(answer)


@agent.start
def start(run: ind.Run[Notebook]) -> None:
    run.state.tasks.append(f"plan: {run.objective}")
