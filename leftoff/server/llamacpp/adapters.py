"""llama-server's /lora-adapters: the adapters of a model, and the scales with which they act unasked."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leftoff.host.adapters import AdapterError
from leftoff.host.host import ModelHost
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError, bad_field
from leftoff.server.reply.response import json_response
from leftoff.server.request.fields import LoraScale
from leftoff.server.tenant import tenant_of


class LoraAdapters(Dialect):
    """The adapters of the first model, or of the one that the query names."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/lora-adapters", "The LoRA adapters of a model", self.adapters),
            Endpoint("POST", "/lora-adapters", "Sets the scales that act unasked", self.set_scales, list[LoraScale]),
        ]

    async def adapters(self, request: Request) -> Response:
        host = await self._host_of(request)
        return json_response(_listed(host))

    async def set_scales(self, request: Request, body: list[LoraScale]) -> Response:
        """Sets the scales for requests from now on; what was read stays with the adapters that it was read with."""
        if not tenant_of(request).is_alone:
            problem = "this would change the replies to other API keys: send `lora` with each request"
            raise ApiError(403, problem, code="not_allowed", kind="permission_error")
        host = await self._host_of(request)
        try:
            host.adapters.set_unasked([(each.id, each.scale) for each in body])
        except AdapterError as error:
            raise bad_field("id", error.problem) from error
        return json_response({"success": True})


def _listed(host: ModelHost) -> list[dict[str, Any]]:
    listed = []
    for number, (each, scale) in enumerate(zip(host.adapters.all, host.adapters.scales, strict=True)):
        file = each.file
        shown = {"id": number, "path": str(file.path), "scale": scale, "name": each.name}
        shown |= {"model": f"{host.name}:{each.name}", "task_name": file.task, "prompt_prefix": file.prefix}
        if file.invocation:
            text = "".join(map(host.model.vocabulary.token_text, file.invocation))
            shown |= {"alora_invocation_string": text, "alora_invocation_tokens": file.invocation}
        listed.append(shown)
    return listed
