"""A language model behind an OpenAI-compatible server on this machine that says what a script says."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ScriptedModel(ThreadingHTTPServer):
    """Replies with what ``script(request)`` returns.

    That is a text; a pair of a status and JSON, or the bytes of what is none; an iterator of bytes, each sent
    as it comes, for a reply that does not end; or None to hang up.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, script):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.script = script
        self.used = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
        self.finish = "stop"
        self.delay = 0.0
        self.requests = []
        self.keys = set()
        self.at_work = self.most_at_work = 0
        self.lock = threading.Lock()

    def handle_error(self, request, client_address):
        """Says nothing of clients that were killed while they asked."""
        if not isinstance(sys.exception(), ConnectionError | json.JSONDecodeError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a reply goes out as a whole

    def do_POST(self):
        server = self.server
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.requests.append(request)
            server.keys.add(self.headers["Authorization"])
            server.at_work += 1
            server.most_at_work = max(server.most_at_work, server.at_work)
        try:
            time.sleep(server.delay)
            reply = server.script(request)
        finally:
            with server.lock:
                server.at_work -= 1
        if reply is None:
            self.close_connection = True
        elif isinstance(reply, tuple):
            self.say(*reply)
        elif isinstance(reply, Iterator):
            with contextlib.suppress(ConnectionError):
                for part in reply:
                    self.wfile.write(part)
                    self.wfile.flush()
            self.close_connection = True
        else:
            message = {"role": "assistant", "content": reply}
            choice = {"index": 0, "message": message, "finish_reason": server.finish}
            content = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
            self.say(200, content | {"choices": [choice], "usage": server.used})

    def say(self, status, content):
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving(script):
    """Serves a script, a function of the request, until the end of the block."""
    with ScriptedModel(script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
