"""The web application: all dialects over the hosts of a server, behind the same middleware."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from leftoff.config import MIB, Settings
from leftoff.server.admin.cache import CacheApi
from leftoff.server.admin.engine import EngineApi
from leftoff.server.admin.events import EventsApi
from leftoff.server.admin.learned import LearnedApi
from leftoff.server.admin.metrics import MetricsApi
from leftoff.server.admin.page import PageApi
from leftoff.server.admin.prewarm import PrewarmApi
from leftoff.server.admin.tree import TreeApi
from leftoff.server.anthropic.routes import Anthropic
from leftoff.server.dialect import Dialect
from leftoff.server.embeddings.rerank import Rerank
from leftoff.server.embeddings.routes import EmbeddingRoutes
from leftoff.server.hosts import Hosts
from leftoff.server.http.endpoint import Endpoint, openapi
from leftoff.server.http.errors import on_error
from leftoff.server.http.middleware import ApiKeys, BodyLimit
from leftoff.server.http.origins import HostCheck, KnownHosts, OriginCheck
from leftoff.server.http.refusals import RefusalLog
from leftoff.server.llamacpp.adapters import LoraAdapters
from leftoff.server.llamacpp.routes import Native
from leftoff.server.llamacpp.slots import Slots
from leftoff.server.ollama.routes import Ollama
from leftoff.server.openai.routes import OpenAI
from leftoff.server.reply.response import json_response
from leftoff.server.request.fetch import WebFiles
from leftoff.server.responses.routes import Responses


def build_app(hosts: Hosts, settings: Settings, addresses: KnownHosts) -> Starlette:
    """The ASGI application: the routes of all dialects behind the middleware."""
    spoken = dialects(hosts, settings)
    error_shapes = {prefix: shape for dialect in spoken for prefix, shape in dialect.error_shapes.items()}
    endpoints = [endpoint for dialect in spoken for endpoint in dialect.endpoints()]

    async def description(_: Request) -> Response:
        return json_response(openapi(endpoints, error_shapes))

    endpoints.append(Endpoint("GET", "/openapi.json", "This description", description))
    app = Starlette(
        routes=[endpoint.route() for endpoint in endpoints],
        middleware=guards(settings, addresses, hosts.secret),
        exception_handlers={HTTPException: on_error},  # no such route, or not by this method
    )
    app.state.error_shapes = error_shapes
    app.state.log_refusal = RefusalLog(hosts.log)
    app.state.known_files = hosts.known_files
    app.state.web_files = WebFiles(max_bytes=settings.max_body * MIB) if settings.fetch_images else None
    return app


def dialects(hosts: Hosts, settings: Settings) -> list[Dialect]:
    """All of them, each with what it uses. To add an API, write its folder and add it here."""
    responses = Responses(hosts, num_tenants=max(1, len(settings.api_key)))
    apis: list[Dialect] = [OpenAI(hosts), responses, Anthropic(hosts), Ollama(hosts), Native(hosts), Slots(hosts)]
    apis += [LoraAdapters(hosts), EmbeddingRoutes(hosts), Rerank(hosts)]
    own: list[Dialect] = [CacheApi(hosts, responses.forget), TreeApi(hosts), EventsApi(hosts), PrewarmApi(hosts)]
    own += [MetricsApi(hosts), EngineApi(hosts), PageApi(hosts, is_shown=settings.page), LearnedApi(hosts)]
    return apis + own


def guards(settings: Settings, addresses: KnownHosts, secret: bytes) -> list[Middleware]:
    """The middleware of a server, and of a router, from the outside in."""
    origins = [origin.rstrip("/") for origin in settings.cors]
    guards = [Middleware(HostCheck, addresses), Middleware(OriginCheck, origins)]
    if origins:
        guards.append(_cors(origins))
    keys = Middleware(ApiKeys, settings.api_key, secret)
    return [*guards, keys, Middleware(BodyLimit, settings.max_body * MIB)]


def _cors(origins: list[str]) -> Middleware:
    """Lets pages of these origins read the answers."""
    return Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], allow_private_network=True
    )
