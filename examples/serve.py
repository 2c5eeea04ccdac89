"""Serves a language model over HTTP, several requests at a time:

    python examples/serve.py MODEL --port 8000
    curl --no-buffer localhost:8000/generate -d '{"prompt": "Once upon", "max_new_tokens": 50, "stream": true}'

A request is JSON: a "prompt", a text or a list of tokens, and options of `onnx_torch.LanguageModel.generate`. The
answer is JSON, too: what was generated, and why it ended; with "stream", a line of it for each token. Where a client
goes away, its generation ends. It is the standard library's server, which has a thread for each connection; the threads
share the steps of one `onnx_torch.Engine`, so that each run of the model gives all open requests a token.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import onnx_torch

LARGEST = 1 << 20  # the most bytes of a request


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], engine: onnx_torch.Engine) -> None:
        super().__init__(address, Handler)
        self.engine = engine


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        if self.path != "/generate":
            return self._answer(404, {"error": "POST to /generate"})
        try:
            options = self._body()
            streams = bool(options.pop("stream", False))
            request = self.server.engine.submit(options.pop("prompt"), **options)
        except (KeyError, TypeError, ValueError, onnx_torch.Error) as error:
            return self._answer(400, {"error": str(error)})
        with contextlib.suppress(ConnectionError):
            try:
                self._stream(request) if streams else self._whole(request)
            finally:
                request.cancel()  # where the client has gone away

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length", 0))
        if not 0 < length <= LARGEST:
            raise ValueError(f"a request is of 1 to {LARGEST} bytes")
        body = json.loads(self.rfile.read(length))
        if not isinstance(body, dict) or "prompt" not in body:
            raise ValueError('a request is an object with a "prompt"')
        return body

    def _whole(self, request: Any) -> None:
        try:
            pieces = list(request)
        except onnx_torch.Error as error:
            return self._answer(500, {"error": str(error)})
        self._answer(200, {"generated": _joined(pieces), "finish_reason": request.finish_reason})

    def _stream(self, request: Any) -> None:
        self._begin(200, {"Transfer-Encoding": "chunked", "Content-Type": "application/x-ndjson"})
        try:
            for piece in request:
                self._chunk({"generated": piece})
            self._chunk({"finish_reason": request.finish_reason})
        except onnx_torch.Error as error:
            self._chunk({"error": str(error)})
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, value: dict[str, Any]) -> None:
        line = json.dumps(value).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self._begin(status, {"Content-Length": str(len(body)), "Content-Type": "application/json"})
        self.wfile.write(body)

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing of each request."""


def _joined(pieces: list[Any]) -> Any:
    """The text, or the tokens."""
    return "".join(pieces) if pieces and isinstance(pieces[0], str) else pieces


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves a language model over HTTP.")
    parser.add_argument("model", help="a file or a folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--requests", type=int, default=16, help="how many go on at a time (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch has")
    args = parser.parse_args()
    lm = onnx_torch.LanguageModel(args.model, threads=args.threads)
    with Server((args.host, args.port), onnx_torch.Engine(lm, max_batch_size=args.requests)) as server:
        print(f"http://{args.host}:{server.server_address[1]}/generate", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
