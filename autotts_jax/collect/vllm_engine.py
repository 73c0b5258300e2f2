"""An engine that runs vLLM in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from autotts_jax.collect.engine import CANCEL_SECONDS, Cancelled, Completion, EngineError, Finish, Request
from autotts_jax.collect.remedies import remedy
from autotts_jax.collect.signals import TOP, reduce_top
from autotts_jax.collect.tokenizer import HubTokenizer
from autotts_jax.errors import InputError
from autotts_jax.extras import needs

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine ends with this process, whatever happens
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # it logs to stdout, which is for results
}
"""Environment variables for vLLM, unless the user has set them."""

ALWAYS: dict[str, Any] = {"enable_prefix_caching": True, "use_tqdm_on_load": False}
CPU_CONTEXT = 8192
"""Tokens of the context on a CPU, unless the user says otherwise: that of large models needs much memory."""
CPU_CACHE = 1 / 8
"""Share of the machine's memory that the prefix cache has on a CPU, unless the user says otherwise: what vLLM
would take for it is seldom free."""
ON_CPU: dict[str, Any] = {
    "block_size": 32,  # prefix caching on a CPU needs a multiple of 32
    "max_num_batched_tokens": 65536,  # seeded requests crash when a prompt is read in several steps
    "enforce_eager": True,
    "dtype": "float32",
}


class _Order:
    """The requests of one caller, and where their completions go."""

    def __init__(self, names: Sequence[str], requests: Sequence[Request]):
        self.requests = dict(zip(names, requests, strict=True))
        self.results: Future[list[Completion]] = Future()
        self._done: dict[str, Completion] = {}

    def deliver(self, name: str, completion: Completion) -> None:
        self._done[name] = completion
        if len(self._done) == len(self.requests):
            self.results.set_result([self._done[name] for name in self.requests])


class VLLMEngine:
    """vLLM's engine, stepped by a thread of its own; requests join the running batch as they arrive.

    Args:
        model: a model's folder or Hugging Face id.
        options: arguments of ``vllm.LLM``, e.g. ``{"max_model_len": 4096}``.
        chat_kwargs: arguments of the chat template, as of `HubTokenizer`.
        think_end: the text that ends the thinking part of replies, as of `HubTokenizer`.

    Raises:
        InputError: vLLM is not installed, or it refuses the model or an option.
    """

    def __init__(
        self,
        model: str,
        options: Mapping[str, Any] | None = None,
        *,
        chat_kwargs: Mapping[str, Any] | None = None,
        think_end: str | None = None,
    ):
        vllm, on_cpu = _vllm()
        given = dict(options or {})
        try:
            llm = vllm.LLM(model=model, **ALWAYS | (_for_cpu(model, given) if on_cpu else {}) | given)
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"vLLM cannot load {model}: {remedy(str(error), on_cpu)}") from error
        self._on_cpu = on_cpu
        self.model = model
        self.max_model_len = llm.llm_engine.model_config.max_model_len
        self.tokenizer = HubTokenizer(llm.get_tokenizer(), chat_kwargs, think_end)
        self._engine = llm.llm_engine
        self._vllm = vllm
        self._names = map(str, itertools.count())
        self._inbox: queue.SimpleQueue[_Order | tuple[str, ...] | None] = queue.SimpleQueue()
        self._waiting: dict[str, _Order] = {}
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="vllm", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        return self._engine.get_num_unfinished_requests()

    def generate(
        self, requests: Sequence[Request], cancel: threading.Event | None = None
    ) -> list[Completion]:
        if not requests:
            return []
        order = _Order([next(self._names) for _ in requests], requests)
        self._inbox.put(order)
        while True:
            if self._failure is not None:
                raise EngineError(self._failure)
            if cancel is not None and cancel.is_set():
                self._inbox.put(tuple(order.requests))
                raise Cancelled
            with contextlib.suppress(TimeoutError):
                return order.results.result(timeout=CANCEL_SECONDS)

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()

    # --- in the engine's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._take_orders():
                for output in self._engine.step():
                    if output.finished and (order := self._waiting.pop(output.request_id, None)):
                        request = order.requests[output.request_id]
                        order.deliver(output.request_id, self._completion(request, output))
            self._failure = "the engine was closed"
        except Exception as error:
            problem = remedy(str(error), self._on_cpu)
            self._failure = f"vLLM failed: {problem}; what was collected is kept, start again to resume"

    def _take_orders(self) -> bool:
        """Passes new orders to the engine, waiting if it has nothing to do; false once it is to end."""
        while True:
            try:
                order = self._inbox.get(block=not self._waiting)
            except queue.Empty:
                return True
            if order is None:
                self._drop(list(self._waiting))
                return False
            if isinstance(order, _Order):
                self._add(order)
            else:
                self._drop(order)

    def _add(self, order: _Order) -> None:
        try:
            for name, request in order.requests.items():
                prompt = self._vllm.TokensPrompt(prompt_token_ids=list(request.prompt))
                self._engine.add_request(name, prompt, self._params(request))
                self._waiting[name] = order
        except Exception as error:  # which class depends on the version of vLLM
            self._drop(order.requests)
            order.results.set_exception(
                EngineError(f"vLLM refuses a request: {remedy(str(error), self._on_cpu)}")
            )

    def _drop(self, names: Iterable[str]) -> None:
        self._engine.abort_request([name for name in names if self._waiting.pop(name, None)])

    def _completion(self, request: Request, output: Any) -> Completion:
        (written,) = output.outputs
        tokens = tuple(written.token_ids)
        told = {} if written.logprobs is None else _probabilities(written.logprobs, request)
        return Completion(
            tokens=tokens,
            # vLLM's text ends at the stop string, and ours has the marks of thinking.
            text=written.text if request.stop else self.tokenizer.decode(tokens),
            finish=Finish(written.finish_reason),
            cached=output.num_cached_tokens or 0,
            **told,
        )

    def _params(self, request: Request) -> Any:
        return self._vllm.SamplingParams(
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            min_p=request.min_p,
            seed=request.seed,
            stop=list(request.stop),
            include_stop_str_in_output=True,
            logprobs=TOP if request.top_logprobs else 0 if request.logprobs else None,
            flat_logprobs=True,
            detokenize=bool(request.stop),  # which takes long where each token has twenty others
            output_kind=self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )


def _probabilities(flat: Any, request: Request) -> dict[str, tuple[float, ...]]:
    """The log-probabilities of tokens, and what becomes of those of the most likely ones."""
    values = np.asarray(flat.logprobs).reshape(len(flat), -1)  # the sampled token before the most likely ones
    told = {"logprobs": tuple(values[:, 0].tolist())}
    if request.top_logprobs:
        told["confidences"], told["entropies"] = reduce_top(values[:, 1:])
    return told


# --- what is known before the model is loaded ---------------------------------------------------------------


def find_context(model: str, options: Mapping[str, Any]) -> int | None:
    """Finds how many tokens a prompt and its completion may have together, from a model's configuration.

    Args:
        model: a model's folder or Hugging Face id.
        options: arguments of ``vllm.LLM``.

    Returns:
        The tokens; None if the configuration does not tell, or cannot be read.
    """
    named = options.get("max_model_len")
    if isinstance(named, int) and named > 0:
        return named
    context = _configured_context(model)
    if named is None and importlib.util.find_spec("vllm") and _vllm()[1]:
        return _cpu_context(context)
    return context


def _configured_context(model: str) -> int | None:
    with needs("collecting", "a model's configuration"):
        from transformers import AutoConfig
    try:
        config = AutoConfig.from_pretrained(model).get_text_config()
    except (OSError, ValueError):
        return None  # loading the model says what is wrong
    context = getattr(config, "max_position_embeddings", None)
    return context if isinstance(context, int) else None


def _cpu_context(context: int | None) -> int:
    return min(CPU_CONTEXT, context or CPU_CONTEXT)


def _for_cpu(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with which vLLM starts on a CPU, where most of the memory may be in use."""
    defaults = dict(ON_CPU)
    if "max_model_len" not in given:
        defaults["max_model_len"] = _cpu_context(_configured_context(model))
    if "gpu_memory_utilization" not in given:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        defaults["kv_cache_memory_bytes"] = int(memory * CPU_CACHE)
    return defaults


def _vllm() -> tuple[Any, bool]:
    """vLLM, and whether it runs on the CPU."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with needs("collect", "the engine vllm (without a GPU: autotts-jax[collect-cpu])"):
        import vllm
        from vllm.platforms import current_platform
    return vllm, current_platform.is_cpu()
