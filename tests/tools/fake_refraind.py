#!/usr/bin/env python3
"""Answers like refraind, without a model: what the fake model path says decides what goes wrong."""

import argparse
import http.server
import json
import signal
import sys
import threading
import time

PIECES = ["The capital", " of France", " is Paris."]


class Handler(http.server.BaseHTTPRequestHandler):
    loading_until = 0.0
    behaviour = "good"

    def do_GET(self):
        if self.path == "/health":
            self.send_response(200 if time.monotonic() >= self.loading_until else 503)
            self.end_headers()
        else:
            self.reply({"object": "list", "data": [{"id": "fake-model", "object": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["stream"] and body["model"] == "fake-model"
        chats = self.path == "/v1/chat/completions"
        assert ("messages" if chats else "prompt") in body
        if self.behaviour == "refuses":
            self.reply({"error": {"message": "no room"}}, status=429)
            return
        if self.behaviour == "base" and chats:
            self.reply({"error": {"message": "the model has no chat template"}}, status=400)
            return
        self.send_response(200)
        self.end_headers()
        for piece in PIECES if self.behaviour != "silent" else []:
            choice = {"index": 0, **({"delta": {"content": piece}} if chats else {"text": piece})}
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def reply(self, body, status=200):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--listen")
    parser.add_argument("--grpc-listen")
    arguments = parser.parse_args()
    Handler.behaviour = arguments.model
    if arguments.model == "damaged":
        print("damaged: tensor 3 ends past the end of the file", file=sys.stderr)
        sys.exit(3)
    host, port = arguments.listen.split(":")
    Handler.loading_until = time.monotonic() + 0.2
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    # "drains": somebody else's answer goes on, until a second signal.
    signals_left = [2 if arguments.model == "drains" else 1]

    def stop(*_):
        signals_left[0] -= 1
        if signals_left[0] == 0:
            threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    server.serve_forever()


if __name__ == "__main__":
    main()
