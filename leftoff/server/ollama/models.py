"""The model as Ollama's clients want it described: in a list, as running, and in full."""

from datetime import UTC, datetime

from leftoff.server.ollama.types import Details, ModelCard, ModelDescription
from leftoff.server.service import Service

_NEVER = datetime(2318, 1, 1, tzinfo=UTC)


def full_name(name: str) -> str:
    """In Ollama every name has a tag."""
    return name if ":" in name else f"{name}:latest"


def listed(service: Service) -> ModelCard:
    name = full_name(service.model_name)
    digest = service.engine.memory.fingerprint
    return ModelCard(name, name, _modified_at(service), service.model.size_bytes, digest, _details(service))


def running(service: Service) -> ModelCard:
    card = listed(service)
    card.expires_at, card.size_vram, card.context_length = _NEVER, 0, service.context_tokens
    return card


def described(service: Service) -> ModelDescription:
    model, prompts = service.model, service.prompts
    architecture = model.architecture
    capabilities = {
        "completion": True,
        "tools": prompts.quirks.shows_tools,
        "thinking": prompts.format.reasoning is not None,
    }
    return ModelDescription(
        template=prompts.template.source,
        details=_details(service),
        model_info={
            "general.architecture": architecture,
            "general.basename": model.name,
            "general.parameter_count": model.num_parameters,
            f"{architecture}.context_length": service.context_tokens,
        },
        capabilities=[name for name, is_there in capabilities.items() if is_there],
        modified_at=_modified_at(service),
    )


def _details(service: Service) -> Details:
    model = service.model
    # llama.cpp describes a model by family, size and quantization
    quantization = model.description.split(maxsplit=2)[-1]
    return Details(model.architecture, [model.architecture], _size(model.num_parameters), quantization)


def _size(num_parameters: int) -> str:
    return f"{num_parameters / 1e9:.1f}B" if num_parameters >= 1e9 else f"{num_parameters / 1e6:.2f}M"


def _modified_at(service: Service) -> datetime:
    return datetime.fromtimestamp(service.model.path.stat().st_mtime, UTC)
