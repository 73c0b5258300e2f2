"""A server on this machine that completes text as vLLM does, or as any that is compatible with OpenAI's."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from autotts_jax.collect import Request, SimulatedEngine

PATIENCE = 10.0
"""Seconds for which a server that hangs waits for its client to leave."""

OPENAI_FIELDS = {"model", "prompt", "max_tokens", "temperature", "top_p", "seed", "stop", "logprobs"}


class Server(ThreadingHTTPServer):
    """Completions of the simulated engine, as vLLM gives them unless told otherwise."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.engine = SimulatedEngine(mean_tokens=40)
        self.key = None
        self.models = [{"id": "digits", "max_model_len": 4096}, {"id": "letters"}]
        self.pages = {}
        """What it has at other paths."""
        self.knows_vllm = True
        self.refuses_unknown = self.refuses_tokens = False
        self.asked = []
        """The calls as they came."""
        self.troubles = []
        """What goes wrong with the next calls, one after the other."""
        self.delay = self.drip = 0.0
        self.calls = 0
        self.at_work = 0
        self.most_at_work = 0
        self.gone = threading.Event()
        self.lock = threading.Lock()

    def logprobs(self, body, written):
        """Of 21 tokens in each place the second one was sampled; the first two have the same text."""
        places = [{f"token_id:{n}": -0.5 - n for n in range(21)} for _ in written.tokens]
        if not body.get("return_tokens_as_token_ids"):
            places = [{("a" if n < 2 else str(n)): -0.5 - n for n in range(21)} for _ in places]
        top = {"top_logprobs": places} if body["logprobs"] == 20 else {}
        return {"token_logprobs": [-1.5] * len(places)} | top

    def completion(self, body):
        request = Request(
            prompt=tuple(body["prompt"]),
            stop=tuple(body.get("stop", ())),
            **{name: body[name] for name in ("max_tokens", "temperature", "top_p", "seed")},
            **{name: body.get(name, 0) for name in ("top_k", "min_p")},
        )
        (written,) = self.engine.generate([request])
        choice = {"index": 0, "text": written.text, "finish_reason": written.finish.value}
        if body.get("logprobs"):
            choice["logprobs"] = self.logprobs(body, written)
        met = next((stop for stop in request.stop if written.text.endswith(stop)), None)
        if not self.knows_vllm:
            choice["text"] = written.text.removesuffix(met or "")
            return {"choices": [choice]}
        assert body["return_token_ids"]
        assert body["include_stop_str_in_output"]
        choice |= {"token_ids": written.tokens, "stop_reason": met}
        cached = min(7, len(request.prompt))
        return {"choices": [choice], "usage": {"prompt_tokens_details": {"cached_tokens": cached}}}

    def chat(self, body):
        """A reply to a conversation; with tools, one of them is called."""
        request = Request(
            prompt=tuple(f"\n{json.dumps(body['messages'])}\n".encode()),
            max_tokens=body["max_tokens"],
            **{name: body.get(name, 0) for name in ("temperature", "seed")},
        )
        (written,) = self.engine.generate([request])
        message = {"role": "assistant", "content": written.text}
        if body.get("tools"):
            called = {"name": body["tools"][0]["function"]["name"], "arguments": "{}"}
            message |= {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": called}]}
        prompted, count = len(request.prompt), len(written.tokens)
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": written.finish.value}],
            "usage": {
                "prompt_tokens": prompted,
                "completion_tokens": count,
                "total_tokens": prompted + count,
            },
        }

    def stream(self, body):
        """The events of the same reply."""
        whole = self.chat(body)
        (choice,) = whole["choices"]
        text = choice["message"].pop("content") or ""
        deltas = [choice["message"], *({"content": text[i : i + 10]} for i in range(0, len(text), 10)), {}]
        for delta in deltas:
            reason = None if delta else choice["finish_reason"]
            part = {"index": 0, "delta": delta, "finish_reason": reason}
            usage = {} if delta else {"usage": whole["usage"]}
            yield {**whole, "object": "chat.completion.chunk", "usage": None, **usage, "choices": [part]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a reply goes out as a whole

    def do_GET(self):
        if self.server.key and self.headers["Authorization"] != f"Bearer {self.server.key}":
            return self.say(401, {"error": "Unauthorized"})
        if self.path in self.server.pages:
            return self.say(200, self.server.pages[self.path])
        if self.path != "/v1/models":
            return self.say(404, {"detail": "Not Found"})
        return self.say(200, {"object": "list", "data": self.server.models})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.asked.append(body)
            server.calls += 1
            server.at_work += 1
            server.most_at_work = max(server.most_at_work, server.at_work)
            trouble = server.troubles.pop(0) if server.troubles else None
        time.sleep(server.delay)
        try:
            if trouble:
                return trouble(self)
            if self.path == "/v1/chat/completions":
                return self.stream(body) if body.get("stream") else self.say(200, server.chat(body))
            if server.refuses_unknown and (unknown := set(body) - OPENAI_FIELDS):
                return self.say(400, {"error": {"message": f"unknown: {sorted(unknown)}"}})
            if server.refuses_tokens:
                return self.say(400, {"error": "prompt must be a string"})
            if len(body["prompt"]) + body["max_tokens"] > 4096:
                return self.say(400, {"error": {"message": "the prompt is too long"}})
            return self.say(200, server.completion(body))
        finally:
            with server.lock:
                server.at_work -= 1

    def say(self, status, content, **headers):
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def stream(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        for chunk in self.server.stream(body):
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
            time.sleep(self.server.drip)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def running_server(port=0):
    server = Server(port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- troubles of a server -------------------------------------------------------------------------------


def say(status, content, **headers):
    return lambda handler: handler.say(status, content, **headers)


def drop(handler):
    handler.close_connection = True


def half(handler):
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"te')


def trickle(handler):
    """Sends a byte now and then, each well within the time that a read may take."""
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    end = time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
