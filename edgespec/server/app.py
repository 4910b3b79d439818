"""The application: which address does what."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..engine.interface import Engine
from ..engine.protocol import GenerateSpec, Loaded
from .adapting import adapted
from .answering import Answer, error_response, json_response
from .chat import ChatForm, read_chat
from .completions import CompletionForm, read_completion
from .embeddings import EmbeddingsAnswer, check_embeds, read_embeddings
from .errors import ApiError, api_error, shutting_down
from .forms import Form, Heading
from .metrics import MEDIA_TYPE, Metrics
from .queueing import Line
from .responses import ResponseForm, read_response
from .schema import Wanted, parse_body
from .security import Guard, KeyCheck, read_body
from .settings import ServerSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Somewhere that text is generated. read: its requests.  form: its answers."""

    read: Callable[[Mapping[str, Any]], Wanted]
    form: Callable[[Wanted, Heading], Form]


EMBEDDINGS = "/v1/embeddings"
ENDPOINTS = {
    "/v1/chat/completions": Endpoint(read_chat, ChatForm),
    "/v1/completions": Endpoint(read_completion, CompletionForm),
    "/v1/responses": Endpoint(read_response, ResponseForm),
}


class Service:
    """What the addresses share. loaded: None while the model is being loaded, which `loading` tells of."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine, self.settings = engine, settings
        self.line = Line(engine, parallel=settings.parallel, waiting=settings.waiting, deadline_s=settings.deadline_s)
        self.metrics = Metrics()
        self.loaded: Loaded | None = None
        self.loading = "loading the model"
        self.created = int(time.time())

    def ready(self) -> Loaded:
        """The model. Raises ApiError while there is none, or none any more."""
        if self.line.closed:
            raise shutting_down()
        if self.loaded is None:
            raise ApiError(503, f"{self.loading}; try again soon", code="loading", headers={"Retry-After": "1"})
        return self.loaded

    def app(self) -> Starlette:
        """The ASGI application."""
        settings = self.settings
        routes = [
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route(EMBEDDINGS, _Embed(self), methods=["POST"]),
            *(Route(path, _Generate(self, path, endpoint), methods=["POST"]) for path, endpoint in ENDPOINTS.items()),
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
        )
        guards = [Middleware(Guard, settings=settings), cors, Middleware(KeyCheck, key=settings.api_key)]
        handlers = {ApiError: self._failed, HTTPException: self._missed, Exception: self._failed}
        app = Starlette(routes=routes, middleware=guards, exception_handlers=handlers)
        app.router.redirect_slashes = False  # they are cut off before (Guard)
        return app

    def named(self, model: str | None) -> None:
        """Raises ApiError where a request is for another model."""
        if model is not None and model not in (self.settings.model, *self.settings.names):
            raise ApiError(
                404,
                f"there is no model {model[:60]!r} here; this server has {self.settings.model!r}",
                param="model",
                code="model_not_found",
            )

    async def _health(self, _: Request) -> Response:
        self.ready()
        return json_response({"status": "ok"})

    async def _metrics(self, _: Request) -> Response:
        state = await asyncio.to_thread(self.engine.state)
        return Response(
            self.metrics.text(state, running=self.line.running, waiting=self.line.waiting), media_type=MEDIA_TYPE
        )

    async def _models(self, _: Request) -> Response:
        return json_response({"object": "list", "data": [self._described()]})

    async def _model(self, request: Request) -> Response:
        self.named(request.path_params["name"])
        return json_response(self._described())

    def _described(self) -> dict[str, Any]:
        loaded = self.ready()
        about = {
            "n_ctx": loaded.n_ctx,
            "why": loaded.why,
            "costs": {"widths": loaded.widths, "ms": loaded.ms, "draft_ms": loaded.draft_ms},
            "draft": loaded.draft,
            "drafter": loaded.drafter,
            "chat": loaded.template,
            "tools": loaded.dialect.form is not None,
            "embeddings": loaded.embedding,
        }
        head = {"id": self.settings.model, "object": "model", "created": self.created, "owned_by": "edgespec"}
        return {**head, "meta": about}

    async def _failed(self, request: Request, error: Exception) -> Response:
        told = api_error(error)
        if not isinstance(error, ApiError):
            log.error("a request to %s failed", request.url.path, exc_info=error)
        self.metrics.answered(_endpoint(request), told.status)
        return error_response(told)

    async def _missed(self, request: Request, error: Exception) -> Response:
        """No such address, or another method."""
        assert isinstance(error, HTTPException)
        what = {404: "there is nothing at this address", 405: "this address takes another method"}
        paths = ", ".join(ENDPOINTS)
        told = ApiError(error.status_code, f"{what.get(error.status_code, error.detail)}; text is generated at {paths}")
        told.headers.update(error.headers or {})
        return await self._failed(request, told)


class _Generate:
    """An address that generates: reads the request, enters the line, answers."""

    def __init__(self, service: Service, path: str, endpoint: Endpoint) -> None:
        self._service, self._path, self._endpoint = service, path, endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, request = self._service, Request(scope, receive)
        try:
            body = parse_body(await read_body(request, service.settings.max_body, service.settings.body_s))
            wanted = self._endpoint.read(body)
            loaded = service.ready()
            service.named(wanted.model)
            if not loaded.generates:
                raise ApiError(
                    400, f"{service.settings.model} generates no text; use {EMBEDDINGS}", code="not_supported"
                )
            if wanted.messages and not loaded.template:
                raise ApiError(
                    400,
                    f"{service.settings.model} has no chat template, so it cannot chat; use /v1/completions",
                    param="messages" if "messages" in wanted.given else "input",
                )
            wanted = adapted(wanted, loaded.dialect)
            asked = service.line.ask(_spec(wanted, service.settings))
        except ClientDisconnect:
            service.metrics.answered(self._path, 499)
            return
        answer = Answer(
            asked,
            self._endpoint.form(wanted, Heading.new(service.settings.model)),
            wanted,
            service.metrics,
            self._path,
            silence_s=service.settings.silence_s,
        )
        await answer(scope, receive, send)


class _Embed:
    """The address for embeddings."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, request = self._service, Request(scope, receive)
        try:
            body = parse_body(await read_body(request, service.settings.max_body, service.settings.body_s))
            wanted = read_embeddings(body)
            loaded = service.ready()
            service.named(wanted.model)
            check_embeds(loaded, wanted)
            asked = service.line.ask(wanted.spec)
        except ClientDisconnect:
            service.metrics.answered(EMBEDDINGS, 499)
            return
        await EmbeddingsAnswer(asked, wanted, service.settings.model, service.metrics, EMBEDDINGS)(scope, receive, send)


def _spec(wanted: Wanted, settings: ServerSettings) -> GenerateSpec:
    options = {**dict(settings.defaults), **wanted.options}
    return GenerateSpec(messages=wanted.messages, prompt=wanted.prompt, options=options)


def _endpoint(request: Request) -> str:
    """For the metrics: only addresses that exist, or anyone could fill them with names."""
    path = request.url.path
    known = (*ENDPOINTS, "/health", "/metrics", "/v1/models", EMBEDDINGS)
    return path if path in known else "other"
