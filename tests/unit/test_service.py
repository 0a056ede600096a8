"""The fake outside world: what it does wrong, what its keys mean, and what outlives it.

Owns: the client of these tests, which knows nothing of the service's code.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from indelible.errors import Misuse
from indelible.testing.service import Misbehaviour, Plan, Series
from indelible.testing.service_ledger import read_ledger
from indelible.testing.world import FakeWorld

MAIL = {"to": "ann@example.org", "text": "hello"}
PAYMENT = {"order": "A-1", "amount": 250}
APPLIED = {
    *(Misbehaviour.ANSWER_LATE, Misbehaviour.APPLY_LATE, Misbehaviour.DROP_AFTER, Misbehaviour.ERROR_AFTER),
    *(Misbehaviour.ANSWER_HALF, Misbehaviour.ANSWER_TWICE, Misbehaviour.GONE_AFTER),
}
WITHOUT_WAITING = [wrong for wrong in Misbehaviour if wrong.value not in ("answer_late", "apply_late")]


class Answer(NamedTuple):
    status: int
    data: Any
    headers: dict[str, str]


def ask(world: FakeWorld, method: str, path: str, body: Any = None, key: str = "") -> Answer:
    with closing(HTTPConnection("127.0.0.1", world.port, timeout=30)) as connection:
        headers = {"Idempotency-Key": key} if key else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return Answer(answer.status, json.loads(answer.read()), dict(answer.getheaders()))


def sent(world: FakeWorld, body: Any, key: str) -> socket.socket:
    """A payment that was sent; nobody reads its answer."""
    raw = json.dumps(body)
    connection = socket.create_connection(("127.0.0.1", world.port))
    head = f"POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\nContent-Length: {len(raw)}\r\n\r\n"
    connection.sendall(f"{head}{raw}".encode())
    return connection


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeWorld]:
    with FakeWorld(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture
def world(shared: FakeWorld) -> FakeWorld:
    """The one service of this module, well-behaved and on an empty ledger."""
    if shared.deeds() or shared.requests():
        shared.stop()
        shared.ledger.unlink()
        Path(f"{shared.ledger}.requests").unlink()
        shared.start()
    return shared


def test_the_same_key_and_body_is_one_deed(world: FakeWorld) -> None:
    first = ask(world, "POST", "/payments", PAYMENT, key="k")
    again = ask(world, "POST", "/payments", dict(reversed(PAYMENT.items())), key="k")
    assert (first.status, again.status) == (201, 200)
    assert first.data == again.data == {**PAYMENT, "id": first.data["id"], "key": "k"}
    assert len(world.deeds()) == 1
    assert [request.did for request in world.requests()] == ["applied", "repeated"]


def test_the_same_key_with_another_body_is_refused(world: FakeWorld) -> None:
    ask(world, "POST", "/payments", PAYMENT, key="k")
    assert ask(world, "POST", "/payments", {**PAYMENT, "amount": 251}, key="k").status == 422
    assert [deed.body for deed in world.deeds()] == [PAYMENT]
    assert ask(world, "POST", "/mails", MAIL, key="k").status == 201, "each kind of deed has its own keys"


def test_without_a_key_a_repeat_is_a_second_deed(world: FakeWorld) -> None:
    ids = {ask(world, "POST", "/mails", MAIL).data["id"] for _ in range(2)}
    assert len(ids) == len(world.deeds("mails")) == 2


def test_the_same_deeds_have_the_same_ids_in_any_order(world: FakeWorld, tmp_path: Path) -> None:
    bodies = [{**MAIL, "text": str(n), "message_id": f"<{n}@x>"} for n in (1, 2, 3)]
    ids = {ask(world, "POST", "/mails", body).data["id"] for body in bodies}
    with FakeWorld(tmp_path) as other:
        renamed = [{**body, "message_id": "<other@x>"} for body in reversed(bodies)]
        assert {ask(other, "POST", "/mails", body).data["id"] for body in renamed} == ids


def test_a_probe_finds_deeds_by_key_by_id_and_by_field(world: FakeWorld) -> None:
    mail = ask(world, "POST", "/mails", {**MAIL, "message_id": "<1@x>"}, key="m").data
    ask(world, "POST", "/mails", {**MAIL, "to": "bob@example.org"})
    for query in ("key=m", "message_id=%3C1%40x%3E", f"id={mail['id']}", "to=ann%40example.org"):
        assert ask(world, "GET", f"/mails?{query}").data == {"mails": [mail]}, query
    assert ask(world, "GET", "/mails?key=other").data == {"mails": []}
    assert ask(world, "GET", "/payments?key=m").data == {"payments": []}
    assert ask(world, "GET", "/mails?kind=x").data == {"mails": []}
    assert len(ask(world, "GET", "/mails").data["mails"]) == len(ask(world, "GET", "/ledger").data["ledger"]) == 2


def test_a_payment_is_refunded_one_time(world: FakeWorld) -> None:
    payment = ask(world, "POST", "/payments", PAYMENT, key="k").data["id"]
    assert ask(world, "POST", "/refunds", {"payment": "other"}).status == 404
    assert ask(world, "POST", "/refunds", {"payment": payment}, key="k").status == 201
    assert ask(world, "POST", "/refunds", {"payment": payment}, key="k").status == 200
    assert ask(world, "POST", "/refunds", {"payment": payment}).status == 409
    assert [deed.kind for deed in world.deeds()] == ["payments", "refunds"]


def test_what_cannot_be_understood_is_refused_and_does_nothing(world: FakeWorld) -> None:
    cases: list[tuple[str, Any, int]] = [
        ("/mails", {}, 400),
        ("/mails", {"to": ""}, 400),
        ("/payments", {"amount": 0}, 400),
        ("/payments", {"amount": True}, 400),
        ("/payments", {"amount": 2.5}, 400),
        ("/payments", [1], 400),
        ("/payments", None, 400),
        ("/nowhere", {}, 404),
        ("/control/nowhere", {}, 404),
        ("/control/plan", {"deeds": {"at": {"1": "explode"}}}, 400),
        ("/control/plan", {"deeds": {"odds": {"too_many": 2}}}, 400),
        ("/control/plan", [], 400),
    ]
    assert [ask(world, "POST", path, body).status for path, body, _ in cases] == [status for *_, status in cases]
    assert world.deeds() == []


@pytest.mark.parametrize("wrong", WITHOUT_WAITING)
def test_each_misbehaviour_of_a_deed(world: FakeWorld, wrong: Misbehaviour) -> None:
    M = Misbehaviour
    world.misbehave(deeds={2: wrong})
    assert ask(world, "POST", "/payments", {**PAYMENT, "order": "first"}, key="1").status == 201
    broken: type[Exception] | None = {
        M.DROP_BEFORE: RemoteDisconnected, M.DROP_AFTER: RemoteDisconnected, M.ANSWER_HALF: IncompleteRead,
        M.GONE_BEFORE: RemoteDisconnected, M.GONE_AFTER: RemoteDisconnected,
    }.get(wrong)  # fmt: skip
    if broken is not None:
        with pytest.raises(broken):
            ask(world, "POST", "/payments", PAYMENT, key="2")
    else:
        answer = ask(world, "POST", "/payments", PAYMENT, key="2")
        assert answer.status == {M.TOO_MANY: 429, M.ERROR_BEFORE: 500, M.ERROR_AFTER: 500}.get(wrong, 201)
        assert ("Retry-After" in answer.headers) == (wrong is M.TOO_MANY)
    assert [deed.key for deed in world.deeds()] == (["1", "2"] if wrong in APPLIED else ["1"])
    last = world.requests()[-1]
    assert (last.number, last.wrong, last.did) == (2, wrong, "applied" if wrong in APPLIED else "nothing")
    if wrong in (M.GONE_BEFORE, M.GONE_AFTER):
        world.wait_until_gone()
        with pytest.raises(ConnectionRefusedError):
            ask(world, "GET", "/ledger")
        world.start()
    assert ask(world, "POST", "/payments", PAYMENT, key="2").status == (200 if wrong in APPLIED else 201)
    assert [deed.key for deed in world.deeds()] == ["1", "2"], "with a key, a repeat does nothing"


def test_an_answer_sent_twice_is_the_same_bytes_twice(world: FakeWorld) -> None:
    world.misbehave(deeds={1: Misbehaviour.ANSWER_TWICE})
    with sent(world, PAYMENT, "k") as connection, connection.makefile("rb") as stream:
        raw = stream.read()
    half = len(raw) // 2
    assert raw[:half] == raw[half:]
    assert raw.count(b"HTTP/1.1 201") == 2
    assert len(world.deeds()) == 1


def test_a_client_is_not_confused_by_a_second_answer(world: FakeWorld) -> None:
    """It must not take what is left of the first answer for the answer to its next question."""
    world.misbehave(looks={1: Misbehaviour.ANSWER_TWICE})
    with closing(HTTPConnection("127.0.0.1", world.port, timeout=30)) as connection:
        for kind in ("mails", "payments"):
            connection.request("GET", f"/{kind}")
            assert json.loads(connection.getresponse().read()) == {kind: []}


def test_each_misbehaviour_of_a_look(world: FakeWorld) -> None:
    ask(world, "POST", "/mails", MAIL, key="m")
    for wrong in WITHOUT_WAITING:
        world.misbehave(looks={1: wrong})
        try:
            seen: int | type[Exception] = ask(world, "GET", "/mails?key=m").status
        except (HTTPException, OSError) as error:
            seen = type(error)
        assert seen == {
            Misbehaviour.TOO_MANY: 429, Misbehaviour.ERROR_BEFORE: 500, Misbehaviour.ERROR_AFTER: 500,
            Misbehaviour.ANSWER_TWICE: 200, Misbehaviour.ANSWER_HALF: IncompleteRead,
        }.get(wrong, RemoteDisconnected)  # fmt: skip
        if wrong in (Misbehaviour.GONE_BEFORE, Misbehaviour.GONE_AFTER):
            world.start()
    assert len(world.deeds()) == 1


def test_a_late_answer_is_to_a_deed_that_is_done_already(world: FakeWorld) -> None:
    world.misbehave(deeds={1: Misbehaviour.ANSWER_LATE})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, world, "POST", "/payments", PAYMENT)
        world.wait_held()
        assert len(world.deeds()) == 1
        assert not answer.done()
        assert world.release() == 1
        assert answer.result().status == 201


def test_a_client_that_does_not_wait_for_a_late_answer_ends_the_wait(world: FakeWorld) -> None:
    world.misbehave(deeds={1: Misbehaviour.ANSWER_LATE})
    with sent(world, PAYMENT, "k"):
        world.wait_held()
    world.wait_held(0)
    assert len(world.deeds()) == 1
    assert ask(world, "POST", "/payments", PAYMENT, key="k").status == 200


def test_a_late_deed_is_done_though_its_client_has_gone(world: FakeWorld) -> None:
    """A former owner's request is still under way when the next one has looked, found nothing, and sent its own."""
    world.misbehave(deeds={1: Misbehaviour.APPLY_LATE, 2: Misbehaviour.APPLY_LATE})
    with sent(world, PAYMENT, "k"), sent(world, PAYMENT, ""):
        world.wait_held(2)
    assert ask(world, "GET", "/payments").data == {"payments": []}
    assert ask(world, "POST", "/payments", PAYMENT, key="k").status == 201
    assert world.release() == 2
    assert sorted(deed.key for deed in world.deeds()) == ["", "k"], "the key covers the one, nothing the other"
    assert Counter(request.did for request in world.requests("deeds")) == {"applied": 2, "repeated": 1}


def test_nothing_is_held_after_a_release(world: FakeWorld) -> None:
    assert world.release() == 0
    world.misbehave(deeds=dict.fromkeys(range(1, 9), Misbehaviour.ANSWER_LATE))
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, world, "POST", "/mails", MAIL) for _ in range(8)]
        world.wait_held(8)
        assert world.release() == 8
        assert [answer.result().status for answer in answers] == [201] * 8
    assert world.release() == 0


def test_a_request_that_is_cut_short_does_nothing(world: FakeWorld) -> None:
    with socket.create_connection(("127.0.0.1", world.port)) as connection:
        connection.sendall(b"POST /payments HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            assert stream.readline().startswith(b"HTTP/1.1 400")
    assert world.deeds() == []


def test_concurrent_requests_with_one_key_are_one_deed(world: FakeWorld) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: ask(world, "POST", "/payments", PAYMENT, key=f"k{n % 4}"), range(64)))
    assert Counter(answer.status for answer in answers) == {201: 4, 200: 60}
    assert sorted(deed.key for deed in world.deeds()) == ["k0", "k1", "k2", "k3"]
    assert len({answer.data["id"] for answer in answers}) == 4
    assert sorted(request.number for request in world.requests()) == list(range(1, 65))


def test_a_service_started_again_goes_on_with_its_ledger(world: FakeWorld) -> None:
    first = ask(world, "POST", "/payments", PAYMENT, key="k").data
    url = world.url
    world.stop()
    assert [deed.answer for deed in world.deeds()] == [first], "the ledger is read without the service"
    with pytest.raises(ConnectionRefusedError):
        ask(world, "POST", "/payments", PAYMENT, key="k")
    with world.ledger.open("a", encoding="utf-8") as file:
        file.write('{"kind": "mails", "id": "to')  # the service was killed in the middle of a line
    assert len(world.deeds()) == 1
    world.start()
    assert world.url == url
    assert ask(world, "POST", "/payments", PAYMENT, key="k")[:2] == (200, first)
    assert ask(world, "POST", "/payments", PAYMENT).data["id"] != first["id"]
    assert ask(world, "POST", "/payments", {**PAYMENT, "amount": 1}, key="k").status == 422
    assert [deed.key for deed in read_ledger(world.ledger)] == ["k", ""]


def test_odds_depend_on_the_seed_and_the_number_alone(world: FakeWorld) -> None:
    odds = {Misbehaviour.TOO_MANY: 0.3, Misbehaviour.ERROR_AFTER: 0.2}
    series = Series(at={3: Misbehaviour.DROP_BEFORE}, odds=odds)
    plan = Plan.from_json(json.loads(json.dumps(Plan(series, Series(), 5).to_json())))
    expected = [plan.of("deeds", number) for number in range(1, 1001)]
    assert expected == [Plan(series, seed=5).of("deeds", number) for number in range(1, 1001)]
    assert expected != [Plan(series, seed=6).of("deeds", number) for number in range(1, 1001)]
    assert expected[2] is Misbehaviour.DROP_BEFORE
    counts = Counter(expected)
    assert 250 < counts[Misbehaviour.TOO_MANY] < 350
    assert 150 < counts[Misbehaviour.ERROR_AFTER] < 250
    assert {plan.of("looks", number) for number in range(1, 100)} == {None}
    world.misbehave(deed_odds=odds, seed=5)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ask(world, "POST", "/mails", MAIL), range(40)))
    met = {request.number: request.wrong for request in world.requests()}
    assert met == {n: Plan(Series(odds=odds), seed=5).of("deeds", n) or "" for n in range(1, 41)}


def test_only_this_machine_and_this_user_see_it(world: FakeWorld) -> None:
    ask(world, "POST", "/mails", MAIL)
    for path in (world.ledger, Path(f"{world.ledger}.requests")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert world.url.startswith("http://127.0.0.1:")


def test_a_deed_can_be_given_to_the_checkers(world: FakeWorld) -> None:
    ask(world, "POST", "/payments", PAYMENT, key="k")
    (deed,) = (done.as_deed() for done in world.deeds())
    assert (deed.kind, deed.key, deed.usd, deed.repeat) == ("payments", "k", 2.5, False)


def test_a_world_that_cannot_start_says_so_and_leaves_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = FakeWorld(tmp_path / "missing")
    with pytest.raises(Misuse, match="did not start"), world:
        pass
    assert "FileNotFoundError" in capfd.readouterr().err


def test_by_hand_with_a_plan_and_an_end_of_input(tmp_path: Path) -> None:
    """Without a parent that holds its input open it does not outlive the test that started it."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"deeds": {"at": {"1": "too_many"}}}), encoding="utf-8")
    command = [sys.executable, "-m", "indelible.testing.service", "--ledger", str(tmp_path / "w"), "--plan", str(plan)]
    with subprocess.Popen([*command, "--until-eof"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        host = child.stdout.readline().strip().removeprefix("http://")
        with closing(HTTPConnection(host, timeout=30)) as connection:
            connection.request("POST", "/mails", json.dumps(MAIL))
            assert connection.getresponse().status == 429
        child.stdin.close()
        assert child.wait(timeout=30) == 0
    assert os.path.getsize(tmp_path / "w") == 0
