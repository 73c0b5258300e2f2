"""The proposer that asks a language model: what it asks, what it pays, and what it keeps."""

import base64
import json
import os
import signal
import threading
from decimal import Decimal

import pytest
from scripted_model import serving

from autotts_jax.discovery.judging import judge as judging
from autotts_jax.discovery.judging.measuring import TRACE
from autotts_jax.discovery.population import Written
from autotts_jax.discovery.proposers.named import as_proposer
from autotts_jax.discovery.proposers.openai import OpenAIProposer, PaidTokens
from autotts_jax.discovery.proposers.prompts import code_of, prompt
from autotts_jax.discovery.proposers.protocol import Writer
from autotts_jax.errors import DataError, InputError

openai = pytest.importorskip("openai")
Completions = openai.resources.chat.completions.Completions

FILE = "def candidate(beta):\n    return beta\n"
REPLY = f"An idea.\n\n```python\n{FILE}```\n"
PRICES = {"wise": (1.25, 10.0)}
METRICS = {"objective": 0.5, "cost": 4.0, "width": 8.0}
KEY = "sk-not-to-be-written"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def server():
    with serving(lambda _: REPLY) as server:
        yield server


def proposer(server, **fields):
    return OpenAIProposer("wise", server.url, **{"pause": 0.01, "reply_tokens": 1000, **fields})


def transcripts(folder):
    return sorted((folder / "transcripts").glob("*.json"))


def test_a_round_asks_for_files_at_a_time_and_keeps_every_reply(server, tmp_path):
    server.delay = 0.2
    drafts = proposer(server, count=3, prices=PRICES, temperature=0.7).write([], tmp_path, 0, 16)
    assert server.most_at_work == 3
    assert [draft.source for draft in drafts] == [FILE] * 3
    assert {draft.tokens for draft in drafts} == {1500}
    assert {draft.dollars for draft in drafts} == {1000 * 1.25e-6 + 500 * 1e-5}
    assert [draft.transcript for draft in drafts] == [path.name for path in transcripts(tmp_path)]
    for request in server.requests:
        assert (request["model"], request["max_tokens"], request["temperature"]) == ("wise", 1000, 0.7)
    kept = json.loads(transcripts(tmp_path)[0].read_text())
    assert kept["request"] in server.requests
    assert kept["response"]["text"] == REPLY


def test_a_round_is_not_paid_for_twice(server, tmp_path):
    first = proposer(server, prices=PRICES).write([], tmp_path, 0, 16)
    again = proposer(server, prices=PRICES).write([], tmp_path, 0, 16)
    assert first == again
    assert len(server.requests) == 4
    assert proposer(server).paid(tmp_path) == PaidTokens(4000, 2000)
    proposer(server).write([], tmp_path, 1, 16)
    assert len(server.requests) == 8


def test_prompts_speak_of_beta_and_of_traces_where_there_are_any():
    with_beta, without = (prompt([], 0, 16, beta).messages[0]["content"] for beta in (True, False))
    assert "a family over one number β" in with_beta
    assert "a family over one number β" not in without
    assert "one controller with constants" in without
    for contract in (with_beta, without):
        for price in judging.PRICES:
            assert f"{price:g}" in contract
        for placeholder in ("{candidates}", "{betas}", "{prices}", "{first}"):
            assert placeholder not in contract
    for feedback, told in ((f"good\n{TRACE}1: dear", True), ("good", False)):
        asked = prompt([Written(0, FILE, METRICS, feedback)], 0, 16).messages[1]["content"]
        assert ("the traces show" in asked) == told


def test_a_call_whose_reply_was_lost_counts_as_the_dearest(server, tmp_path):
    """As after a SIGKILL between the request and the reply."""
    proposer(server, count=1).write([], tmp_path, 0, 16)
    (path,) = transcripts(tmp_path)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"response": None}))
    most = PaidTokens(*kept["most"])
    assert proposer(server).paid(tmp_path) == most
    assert most.prompt >= len(json.dumps(kept["request"]["messages"])) // 2
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.source == FILE
    assert proposer(server).paid(tmp_path) == most.plus(PaidTokens(1000, 500))


@pytest.mark.parametrize("cap", [0.05, 0.0801, 0.11])
def test_a_cap_in_dollars_holds_though_calls_are_made_at_a_time(server, tmp_path, cap):
    """The server bills all that a call can cost."""
    asking = proposer(server, prices=PRICES, max_dollars=cap)
    server.delay = 0.05

    def bill(request):
        content = sum(len(message["content"].encode()) + 64 for message in request["messages"])
        server.used = {"prompt_tokens": content, "completion_tokens": 1000, "total_tokens": content + 1000}
        return REPLY

    server.script = bill
    rounds = 0
    while drafts := asking.write([], tmp_path, rounds, 16):
        rounds += 1
        assert sum(draft.tokens for draft in drafts)
    one = asking.dollars(PaidTokens(server.used["prompt_tokens"], 1000))
    spent = asking.dollars(asking.paid(tmp_path))
    assert len(server.requests) == int(Decimal(str(cap)) / one) > 0
    assert spent == one * len(server.requests) <= Decimal(str(cap)) < spent + one


def test_a_cap_in_tokens_holds(server, tmp_path):
    asking = proposer(server, max_tokens=12_000)
    while asking.write([], tmp_path, len(server.requests), 16):
        pass
    assert 0 < asking.paid(tmp_path).tokens <= 12_000


def test_a_cap_holds_for_all_models_of_a_run_together(server, tmp_path):
    prices = PRICES | {"dear": (1000.0, 1000.0)}

    def dear(cap):
        return OpenAIProposer("dear", server.url, count=1, prices=prices, max_dollars=cap, reply_tokens=1000)

    assert proposer(server, count=1).write([], tmp_path, 0, 16)
    most = float(dear(1).dollars(PaidTokens(*json.loads(transcripts(tmp_path)[0].read_text())["most"])))
    cap = most + 1.5
    assert dear(cap).write([], tmp_path, 1, 16)  # 1,500 tokens for a dollar and a half
    assert not dear(cap).write([], tmp_path, 2, 16), "what the other model was paid counts"
    assert proposer(server, count=1, prices=prices, max_dollars=cap).write([], tmp_path, 2, 16)
    assert dear(cap + 0.1).write([], tmp_path, 3, 16)
    assert not proposer(server, max_tokens=6500).write([], tmp_path, 4, 16)
    with pytest.raises(InputError, match="dear has no price"):
        proposer(server, max_dollars=cap, prices=PRICES).write([], tmp_path, 4, 16)


def test_a_model_without_a_price_is_unpriced_and_not_free(server, tmp_path):
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.dollars is None
    with pytest.raises(InputError, match="wise has no price, so a limit in dollars cannot hold"):
        proposer(server, max_dollars=1.0, prices={"another": (0, 0)})


def test_the_key_is_sent_and_written_nowhere(server, tmp_path):
    server.script = lambda _: f"Your key is {KEY}.\n```python\n# {KEY}\n```\n"
    drafts = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert drafts[0].source == "# [key]\n"
    assert drafts == proposer(server, count=1).write([], tmp_path, 0, 16)
    assert server.keys == {f"Bearer {KEY}"}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY in path.read_text()]


@pytest.mark.parametrize("name", ["0", "null", "none", "x"])
def test_a_key_that_is_none_may_stand_in_replies(server, tmp_path, monkeypatch, name):
    """Servers that want no key are given one all the same."""
    monkeypatch.setenv("OPENAI_API_KEY", name)
    source = f"# {name}\n{FILE}"
    server.script = lambda _: f"```python\n{source}```"
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.source == source
    assert proposer(server, count=1).write([], tmp_path, 0, 16) == [draft]


@pytest.mark.parametrize("name", ["sk-täglich-neu", "sk-one\nsk-two"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(server, tmp_path, monkeypatch, name):
    monkeypatch.setenv("OPENAI_API_KEY", name)
    with pytest.raises(InputError, match="OPENAI_API_KEY holds characters") as refusal:
        proposer(server, count=1).write([], tmp_path, 0, 16)
    assert "sk-" not in str(refusal.value)
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    proposer(server, count=1).write([], tmp_path, 0, 16)
    assert server.keys == {f"Bearer {KEY}"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "used",
    [
        None,
        [],
        {},
        *(
            {"prompt_tokens": tokens, "completion_tokens": 7}
            for tokens in (-1, 0, 1.5, "3", True, None, 10**400, 10**6)
        ),
        {"prompt_tokens": 7, "completion_tokens": 0},
        {"prompt_tokens": 7, "completion_tokens": 1001},
        {"prompt_tokens": 7, "completion_tokens": float("nan")},
    ],
)
def test_a_count_of_tokens_that_is_none_counts_as_the_dearest(server, tmp_path, used):
    server.used = used
    (draft,) = proposer(server, count=1, prices=PRICES).write([], tmp_path, 0, 16)
    (path,) = transcripts(tmp_path)
    most = PaidTokens(*json.loads(path.read_text())["most"])
    assert proposer(server).paid(tmp_path) == most
    assert draft.tokens == most.tokens > 1000
    assert draft.dollars == pytest.approx(most.prompt * 1.25e-6 + most.reply * 1e-5)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"<html>", b'{"a": "\xff"}', b"[" * 100_000, b'{"usage": %s}' % (b"9" * 5000)],
    ids=["nothing", "half", "HTML", "no UTF-8", "deep", "digits"],
)
def test_a_reply_that_is_no_json_is_a_failure_that_is_paid_for(server, tmp_path, content):
    server.script = lambda _: (200, content)
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert (draft.source, draft.failure) == (None, "the server's reply is not a chat completion")
    assert draft.tokens == proposer(server).paid(tmp_path).tokens > 1000


def test_a_reply_that_does_not_end_is_a_failure(server, tmp_path):
    """The server says a byte now and then, so that the client does not give up."""
    over = threading.Event()

    def drip():
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
        while not over.wait(0.02):
            yield b" "

    server.script = lambda _: drip()
    try:
        (draft,) = proposer(server, count=1, seconds=0.2).write([], tmp_path, 0, 16)
    finally:
        over.set()
    assert (draft.source, draft.failure) == (None, "no reply within 0.2 s")
    assert draft.tokens == proposer(server).paid(tmp_path).tokens > 1000


def test_a_long_reply_is_a_failure(server, tmp_path):
    server.script = lambda _: f"```python\n{'x' * (1 << 20)}\n```"
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.source is None
    assert "more than 1048576 characters" in draft.failure
    (path,) = transcripts(tmp_path)
    assert path.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("head", "failure"),
    [
        (b"", "the reply has more than 16777216 bytes"),
        (b"Content-Encoding: gzip\r\n", "the reply is compressed"),
    ],
)
@pytest.mark.parametrize("wraps", [False, True])
def test_a_reply_without_end_is_not_held(server, tmp_path, monkeypatch, head, failure, wraps):
    create = Completions.create

    def wrapping(*arguments, **request):
        try:
            return create(*arguments, **request)
        except openai.OpenAIError:
            raise
        except Exception as error:
            raise openai.APIConnectionError(request=None) from error

    if wraps:  # as some versions of the client do
        monkeypatch.setattr(Completions, "create", wrapping)
    sent = 0

    def endless():
        nonlocal sent
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n" + head + b"\r\n"
        while sent < 1 << 28:
            sent += 1 << 20
            yield bytes(1 << 20)

    server.script = lambda _: endless()
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.failure == failure
    assert sent < 1 << 27


def test_a_busy_server_is_asked_again(server, tmp_path):
    troubles = [(429, {"error": {"message": "slow down"}}), (503, {"error": {"message": "loading"}})]
    server.script = lambda _: troubles.pop() if troubles else REPLY
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.source == FILE
    assert len(server.requests) == 3
    assert proposer(server).paid(tmp_path) == PaidTokens(1000, 500)


def test_a_refused_call_costs_nothing_and_ends_the_round(server, tmp_path):
    lock, calls = threading.Lock(), []

    def refuse_the_second(request):
        with lock:
            calls.append(request)
            return (401, {"error": {"message": f"wrong key {KEY}"}}) if len(calls) == 2 else REPLY

    server.script = refuse_the_second
    with pytest.raises(InputError, match=r"wrong key \[key\].*call again to go on"):
        proposer(server).write([], tmp_path, 0, 16)
    assert proposer(server).paid(tmp_path) == PaidTokens(3000, 1500)
    assert len(proposer(server).write([], tmp_path, 0, 16)) == 4
    assert len(server.requests) == 5


def test_a_signal_does_not_wait_for_replies(server, tmp_path):
    left = threading.Event()
    waited = []

    def silent(_):
        os.kill(os.getpid(), signal.SIGINT)
        waited.append(not left.wait(20))
        return REPLY

    server.script = silent
    with pytest.raises(KeyboardInterrupt):
        proposer(server, count=1).write([], tmp_path, 0, 16)
    assert not any("ThreadPool" in thread.name for thread in threading.enumerate())
    left.set()
    assert not any(waited)


def test_a_password_in_the_address_is_written_nowhere(server, tmp_path):
    sent = base64.b64encode(b"me:open sesame").decode()
    server.script = lambda _: f"open sesame, open%20sesame, {sent}"
    url = server.url.replace("://", "://me:open%20sesame@")
    OpenAIProposer("wise", url, count=1).write([], tmp_path, 0, 16)
    (path,) = transcripts(tmp_path)
    assert json.loads(path.read_text())["response"]["text"] == "[key], [key], [key]"


def test_a_server_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="does not answer"):
        OpenAIProposer("wise", "http://127.0.0.1:9/v1", count=1).write([], tmp_path, 0, 16)
    assert transcripts(tmp_path) == []


def test_a_reply_that_is_cut_off_in_the_middle_may_have_been_paid_for(server, tmp_path):
    server.script = lambda _: None
    with pytest.raises(InputError, match="does not answer"):
        proposer(server, count=1).write([], tmp_path, 0, 16)
    assert proposer(server).paid(tmp_path).reply == 1000


def test_a_timeout_is_a_failure_that_is_paid_for(server, tmp_path):
    server.delay = 1.0
    (draft,) = proposer(server, count=1, seconds=0.2).write([], tmp_path, 0, 16)
    assert (draft.source, draft.failure) == (None, "no reply within 0.2 s")
    assert draft.tokens == proposer(server).paid(tmp_path).tokens > 1000


def test_a_server_that_wants_the_newer_name_of_the_limit(server, tmp_path):
    def newer(request):
        if "max_tokens" in request:
            return 400, {"error": {"message": "use max_completion_tokens instead of max_tokens"}}
        return REPLY if request["max_completion_tokens"] == 1000 else None

    server.script = newer
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.source == FILE


@pytest.mark.parametrize(
    ("reply", "finish", "failure"),
    [
        ("I would rather not.", "stop", "no code block"),
        ("```python\nimport jax\n", "length", "cut off after 1000 tokens"),
        ((200, {"choices": []}), "stop", "not a chat completion"),
        ((200, {"choices": [{"message": None}]}), "stop", "not a chat completion"),
        ((200, ["what"]), "stop", "not a chat completion"),
    ],
)
def test_replies_without_a_file_are_failures(server, tmp_path, reply, finish, failure):
    server.script, server.finish = lambda _: reply, finish
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.source is None
    assert failure in draft.failure
    assert proposer(server).paid(tmp_path).tokens >= 1000


def test_the_last_code_block_is_the_file():
    assert code_of("```py\nfirst\n```\nor rather\n``` python\r\nlast\n```") == "last\n"
    assert code_of("```\nbare\n```") == "bare\n"
    assert code_of("`x`") is None
    for hours in (" " * (1 << 20) + "x", " " * (1 << 20) + "x`", "`" * (1 << 20) + "x", "\n```" * (1 << 18)):
        assert code_of("```" + hours) is None  # A search that goes back to each character takes hours.


@pytest.mark.parametrize(
    "reply",
    [
        "~~~python\n{code}~~~",
        "````python\n{code}````",
        "```Python3\n{code}```",
        '```python title="a.py"\n{code}```',
        "```python:a.py\n{code}```",
        "```{{.python}}\n{code}```",
        "1. As follows:\n   ```python\n   def f():\n\n     return '``` or ~~~'\n   ```\n",
        "<think>```python\nx = 1\n```</think>\n```python\n{code}```",
        "```bash\npip install jax\n```\nThen:\n```python\n{code}```",
        "```python\n{code}```\nIts output\n```text\n1\n```\nand settings are\n```json\n{{}}\n```\n",
        "```python\n{code}```\nOutput:\n```\n1 2 3\n```\n",
        "```python\n{code}```\n```python\n```\n",
    ],
)
def test_a_file_is_found_however_a_model_fences_it(reply):
    code = "def f():\n\n  return '``` or ~~~'\n"
    assert code_of(reply.format(code=code)) == code


@pytest.mark.parametrize(
    "reply", ["```diff\n+ x\n```", "```python\n```", "```bash\nls\n```\nno\n```sh\nls\n```"]
)
def test_another_language_is_no_file(reply):
    assert code_of(reply) is None


def test_the_prompt_shows_the_best_and_what_failed():
    history = [
        Written(number, f"# source {number}", METRICS | {"objective": number / 10}, f"feedback {number}")
        for number in range(5)
    ]
    history += [Written(number, "# bad", None, f"SyntaxError {number}") for number in range(5, 10)]
    messages, parents = prompt(history, 0, 16)
    assert parents == (4, 3, 2)
    assert prompt(history, 1, 16)[1] == (3, 2, 4)
    system, asked = (message["content"] for message in messages)
    assert "At most 16 branches" in system
    assert f"costs {judging.PRICES[0]:g} of accuracy at β = 0 and {judging.PRICES[1]:g} at β = 1" in system
    assert "{width}" not in system
    for text in ("# source 4", "feedback 2", "SyntaxError 9", "SyntaxError 7"):
        assert text in asked
    for text in ("# source 1", "SyntaxError 6", "# bad"):
        assert text not in asked
    assert prompt([], 0, 16)[1] == ()


def test_proposers_by_name():
    found = as_proposer("openai:some/model:latest")
    assert isinstance(found, Writer)
    assert found == OpenAIProposer("some/model:latest")
    assert found.name == "openai:some/model:latest"
    with pytest.raises(InputError, match="openai:MODEL"):
        as_proposer("openai")
    with pytest.raises(InputError, match="no model"):
        as_proposer("openai:")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 0}, "count is 0"),
        ({"count": 10**8}, "count is 100000000, but it must be between 1 and 128"),
        ({"base_url": 5}, "base_url is 5, but it must be text"),
        *(
            ({"base_url": given}, "base_url is '.*, but it must be the address of a server, as http://")
            for given in ("", "127.0.0.1:8000/v1", "htp://here/v1", "http://", "http://h:port", "http://a b")
        ),
        ({"base_url": "http://me:secret@h:99999"}, r"base_url is 'http://\[hidden\]@h:99999'"),
        ({"prices": {"wise": (-1, 0)}}, "dollars for a million tokens"),
        ({"prices": PRICES, "max_dollars": float("nan")}, "max_dollars is nan"),
    ],
)
def test_settings_are_checked(fields, message):
    with pytest.raises(InputError, match=message):
        OpenAIProposer("wise", **fields)


def test_a_damaged_transcript_is_named(server, tmp_path):
    proposer(server, count=1).write([], tmp_path, 0, 16)
    (path,) = transcripts(tmp_path)
    whole = json.loads(path.read_text())
    damages = [
        {"lost": True},
        {"lost": -1},
        {"most": [1]},
        {"most": [], "response": None},
        {"most": [True, 5]},
        {"most": [-1, 5]},
        {"request": []},
        {"response": []},
        {"response": whole["response"] | {"used": [-5, -5]}},
        {"response": whole["response"] | {"used": [5]}},
        {"response": whole["response"] | {"used": "ab"}},
        {"response": whole["response"] | {"text": 5}},
    ]
    for content in ("{", "[]", *(json.dumps(whole | damage) for damage in damages)):
        path.write_text(content)
        with pytest.raises(DataError, match=path.name):
            proposer(server, count=1).write([], tmp_path, 0, 16)


def test_the_address_comes_from_the_environment(server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    (draft,) = OpenAIProposer("wise", count=1).write([], tmp_path, 0, 16)
    assert draft.source == FILE


def test_the_address_of_the_environment_is_checked(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000")
    with pytest.raises(InputError, match="OPENAI_BASE_URL is 'localhost:8000', but it must be the address"):
        OpenAIProposer("wise")


def test_text_that_is_no_unicode_is_made_so(server, tmp_path):
    server.script = lambda _: "```python\n# \ud800\n```"
    (draft,) = proposer(server, count=1).write([], tmp_path, 0, 16)
    assert draft.source == "# ?\n"
    assert draft == proposer(server, count=1).write([], tmp_path, 0, 16)[0]
