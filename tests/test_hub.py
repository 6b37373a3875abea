from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import datasets.config
import pytest
from huggingface_hub import constants

from mlmclm.corpora import Corpus, load_corpus
from mlmclm.corpora.labelled import load_task
from mlmclm.errors import UserError
from mlmclm.hub import asked_once, silence
from mlmclm.tokenization import load_tokenizer


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def serve(monkeypatch):
    """Make a server on this machine the hub; it is gone, its port closed, once it was stopped."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("no_proxy", "*")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")

    def answer(status):
        server.status = status
        if status is None:
            server.shutdown()
            server.server_close()

    yield answer
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [200, 404, 503])
def test_any_answer_counts_and_leaves_the_hub_on_line(serve, status):
    serve(status)
    with asked_once() as reason:
        assert reason is None
        assert not constants.is_offline_mode()


def test_no_answer_means_the_cache_only_and_only_inside(serve):
    serve(None)
    with asked_once() as reason:
        assert reason is not None
        assert "127.0.0.1" in reason
        assert constants.is_offline_mode()
    assert not constants.is_offline_mode()


def test_offline_by_choice_asks_nobody(serve, monkeypatch):
    serve(200)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert silence() == "HF_HUB_OFFLINE is set"


@pytest.mark.parametrize(
    "load",
    [
        lambda: load_corpus("nobody/nothing:raw"),
        lambda: load_task("sst2"),
        lambda: load_tokenizer("nobody/nothing", Corpus("none", {})),
    ],
    ids=["corpus", "task", "tokenizer"],
)
def test_without_a_network_loading_fails_at_once_and_says_why(serve, load):
    serve(None)
    started = time.perf_counter()
    with pytest.raises(UserError, match=r"127.0.0.1:\d+ cannot be reached.*without a") as caught:
        load()
    assert time.perf_counter() - started < 8
    assert "\n" not in str(caught.value)
