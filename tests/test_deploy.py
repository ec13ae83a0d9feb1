"""What stands in deploy/ agrees with the code: flags, settings, ports, paths, names; and its fleet runs as written.

`make image` builds the image and plays it. The unit was run under systemd, and the manifests pass the schemas of
Kubernetes where these are installed (pip install kubernetes-validate).
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from lab.bench.process import Process
from lab.start.formula import filled
from leftoff import __version__
from leftoff.cli.flags import CommandLine, given_values
from leftoff.config import Settings, definitions
from leftoff.engine.fingerprint import cache_folder
from leftoff.engine.install.packages import PACKAGES
from tests.cli.here import served
from tests.cluster.processes import USUAL
from tests.patience import PATIENCE_S, until
from tests.store.parts import BUCKET, S3, S3_ENVIRONMENT, redis

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
UNIT = (DEPLOY / "leftoff.service").read_text()
SETTINGS = {definition.environment for definition in definitions()}
PORTS = {"serve": Settings().port, "route": 8090}
KEY, FLEET_KEY = "k" * 16, "f" * 32


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def image_environment() -> dict[str, str]:
    """The variables that the image sets."""
    lines = re.findall(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    return dict(word.split("=", 1) for line in lines for word in shlex.split(line.replace("\\\n", " ")))


def pods(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each pod of a manifest that runs leftoff: its labels, and its spec."""
    for document in documents(path):
        template = document.get("spec", {}).get("template", {})
        if any("leftoff:" in container["image"] for container in template.get("spec", {}).get("containers", [])):
            yield template["metadata"]["labels"], template["spec"]


PODS = [(path.name, labels, spec) for path in MANIFESTS for labels, spec in pods(path)]
each_pod = pytest.mark.parametrize(
    ("name", "labels", "pod"), PODS, ids=[f"{name}-{labels['leftoff']}" for name, labels, _ in PODS]
)


def variables(container: dict[str, Any]) -> dict[str, str]:
    """Its environment, with what the cluster puts in."""
    found: dict[str, str] = {}
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        value = "default" if "fieldRef" in source else KEY if source else variable["value"]
        found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
    return found


def check_command(words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Parses it as leftoff does, and checks every setting. Returns those that were given."""
    unknown = {name for name in environment if name.startswith("LEFTOFF_")} - SETTINGS
    assert not unknown
    parser = CommandLine(prog="leftoff")
    import_module(f"leftoff.cli.{words[0]}").add_parser(parser.add_subparsers())
    given = given_values(parser.parse_args(words), environment)
    Settings(**given)
    return given


# --- the image


def test_the_image_has_a_target_for_each_kind_of_engine() -> None:
    assert re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE) == ["build", "cpu", "cuda", "vulkan"]
    (default,) = re.findall(r"^ARG ENGINE=(\w+)$", DOCKERFILE, re.MULTILINE)
    installed = {default, *re.findall(r"leftoff engine install (\w+)", DOCKERFILE)}
    assert installed == {"cuda13", "vulkan"} <= {package.name for package in PACKAGES}


def test_the_image_has_what_it_is_made_of() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert sent == {"leftoff", "pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in sent)
    (extras,) = re.findall(r"/src\[([\w,]+)\]", DOCKERFILE)
    assert {*extras.split(",")} <= project["project"]["optional-dependencies"].keys()
    assert "libgomp1" in DOCKERFILE
    (python,) = re.findall(r"python:(3\.\d+)-", DOCKERFILE)
    assert f"Programming Language :: Python :: {python}" in project["project"]["classifiers"]


def test_the_image_listens_where_it_says_and_is_not_root() -> None:
    environment = image_environment()
    given = check_command(["serve"], {name: value for name, value in environment.items() if name in SETTINGS})
    assert (given["host"], given["port"]) == ("0.0.0.0", PORTS["serve"])
    assert re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE) == [str(PORTS["serve"])]
    assert {*re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)[-1].split(":")} == {"10001"}
    assert 'ENTRYPOINT ["leftoff"]\nCMD ["serve"]' in DOCKERFILE


def test_what_the_image_keeps_is_on_its_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = image_environment()
    volumes = yaml.safe_load(re.findall(r"^VOLUME (.*)$", DOCKERFILE, re.MULTILINE)[0])
    assert volumes == ["/cache", "/models"]
    monkeypatch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
    assert cache_folder() == Path("/cache/leftoff")
    assert environment["HF_HOME"].startswith("/models/")
    assert environment["CUDA_CACHE_PATH"].startswith("/cache/")


def test_the_health_check_passes_where_a_server_answers_and_fails_where_none_does() -> None:
    (check,) = re.findall(r"^HEALTHCHECK .*\\\n\s+CMD (.*)$", DOCKERFILE, re.MULTILINE)
    _, *code = yaml.safe_load(check)
    with served() as server:
        port = server.url.rpartition(":")[2]
        assert run(sys.executable, *code, LEFTOFF_PORT=port).returncode == 0
    assert run(sys.executable, *code, LEFTOFF_PORT=port).returncode != 0


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


# --- compose


def test_compose_starts_what_there_is() -> None:
    services = documents(DEPLOY / "compose.yaml")[0]["services"]
    server = services["leftoff"]
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    given = {name: value for name, value in server["environment"].items() if value is not None}
    text = {name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for name, value in given.items()}
    assert server["environment"].keys() <= SETTINGS
    assert check_command(["serve"], text)["allowed_host"] == ("leftoff",)
    assert server["ports"] == [f"127.0.0.1:{PORTS['serve']}:{PORTS['serve']}"]
    assert [volume.rpartition(":")[2] for volume in server["volumes"]] == ["/cache", "/models"]
    address = f"http://leftoff:{PORTS['serve']}"
    assert services["chat"]["command"] == ["chat", address]
    check_command(services["chat"]["command"], {})
    assert services["open-webui"]["environment"]["OPENAI_API_BASE_URL"] == f"{address}/v1"


@pytest.mark.parametrize("kind", ["cuda", "vulkan"])
def test_compose_for_a_gpu_takes_the_target_of_that_name(kind: str) -> None:
    (service,) = documents(DEPLOY / f"compose.{kind}.yaml")[0]["services"].values()
    assert (service["build"]["target"], service["image"]) == (kind, f"localhost/leftoff:{kind}")


# --- systemd


def test_the_unit_runs_a_command_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = re.findall(r"^ExecStart=/opt/leftoff/bin/leftoff (.*)$", UNIT, re.MULTILINE)
    words = [word for line in re.findall(r"^Environment=(.*)$", UNIT, re.MULTILINE) for word in line.split()]
    environment = dict(word.split("=", 1) for word in words)
    check_command(command.split(), environment)
    (name,) = re.findall(r"^CacheDirectory=(.*)$", UNIT, re.MULTILINE)
    monkeypatch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
    assert cache_folder() == Path("/var/cache", name)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "leftoff.service"
    copy.write_text(UNIT.replace("/opt/leftoff/bin/leftoff", sys.executable))
    said = run("systemd-analyze", "verify", "--man=no", str(copy))
    assert "leftoff.service" not in said.stderr, said.stderr


# --- Kubernetes


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_schemas_of_kubernetes_accept_the_manifest(path: Path) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for document in documents(path):
        schemas.validate(document, schemas.latest_version(), strict=True)


def test_there_are_a_server_and_a_fleet() -> None:
    kinds = [(name, labels["leftoff"], spec["containers"][0]["args"]) for name, labels, spec in PODS]
    assert kinds == [
        ("fleet.yaml", "router", ["route"]),
        ("fleet.yaml", "server", ["serve"]),
        ("server.yaml", "server", ["serve"]),
    ]


@each_pod
def test_a_pod_has_the_ports_and_paths_of_the_image(name: str, labels: dict[str, str], pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    check_command(container["args"], variables(container))
    assert container["ports"] == [{"name": "http", "containerPort": PORTS[container["args"][0]]}]
    probes = [container[probe] for probe in container if probe.endswith("Probe")]
    assert {probe["httpGet"]["path"] for probe in probes if "httpGet" in probe} == {"/health"}
    assert {(probe.get("httpGet") or probe["tcpSocket"])["port"] for probe in probes} == {"http"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert labels["leftoff"] == "router" or (mounts["cache"], mounts["models"]) == ("/cache", "/models")
    assert mounts["tmp"] == image_environment()["HOME"]
    claims = [d["metadata"]["name"] for d in documents(KUBERNETES / name) if d["kind"] == "PersistentVolumeClaim"]
    used = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
    assert used == claims


@each_pod
def test_a_pod_may_do_little(name: str, labels: dict[str, str], pod: dict[str, Any]) -> None:  # noqa: ARG001
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["fsGroup"] == 10001
    assert pod["automountServiceAccountToken"] is False
    # A service named leftoff would else set LEFTOFF_PORT to tcp://10.0.0.1:8080.
    assert pod["enableServiceLinks"] is False
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_clients_reach_the_service_by_its_names(path: Path) -> None:
    services = {d["metadata"]["name"]: d["spec"] for d in documents(path) if d["kind"] == "Service"}
    port = services["leftoff"]["ports"][0]
    assert (port["port"], port["targetPort"]) == (PORTS["serve"], "http")
    (labels, pod), *_ = pods(path)
    assert services["leftoff"]["selector"].items() <= labels.items()
    names = variables(pod["containers"][0])["LEFTOFF_ALLOWED_HOST"].split(",")
    assert names == ["leftoff", "leftoff.default", "leftoff.default.svc", "leftoff.default.svc.cluster.local"]


def test_the_fleet_finds_its_index() -> None:
    fleet = documents(KUBERNETES / "fleet.yaml")
    (index,) = [d["spec"] for d in fleet if d["kind"] == "Service" and d["metadata"]["name"] == "leftoff-index"]
    for _, pod in pods(KUBERNETES / "fleet.yaml"):
        (container,) = pod["containers"]
        assert variables(container)["LEFTOFF_INDEX"] == f"redis://leftoff-index:{index['ports'][0]['port']}/0"
        (key,) = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        (mount,) = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "key"]
        assert variables(container)["LEFTOFF_FLEET_KEY"] == f"{mount}/{key['items'][0]['path']}"
        assert key["defaultMode"] == 0o440


def test_prometheus_and_grafana_find_the_pods_and_the_dashboard() -> None:
    (monitor,) = documents(KUBERNETES / "monitor" / "podmonitor.yaml")
    (chosen,) = monitor["spec"]["selector"]["matchExpressions"]
    assert {labels[chosen["key"]] for _, labels, _ in PODS} == {*chosen["values"]}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    (kustomization,) = documents(KUBERNETES / "monitor" / "kustomization.yaml")
    files = [*kustomization["resources"], *kustomization["configMapGenerator"][0]["files"]]
    assert {*files, "kustomization.yaml"} == {path.name for path in (KUBERNETES / "monitor").iterdir()}


def test_the_fleet_of_the_manifest_answers_and_shares(tmp_path: Path) -> None:
    """Its commands and variables, with an index, a bucket and a key of this machine in place of the cluster's."""
    key = tmp_path / "fleet.key"
    key.write_text(FLEET_KEY)
    key.chmod(0o600)
    (_, router), (_, server) = pods(KUBERNETES / "fleet.yaml")
    with ExitStack() as parts:
        index = parts.enter_context(redis())
        bucket = S3()
        parts.callback(bucket.kill)
        here = {"LEFTOFF_INDEX": index.url, "LEFTOFF_FLEET_KEY": str(key), "LEFTOFF_HOST": "127.0.0.1"}
        here |= S3_ENVIRONMENT | {"AWS_ENDPOINT": f"http://127.0.0.1:{bucket.port}", "AWS_ALLOW_HTTP": "true"}

        def start(pod: dict[str, Any], *flags: str, **environment: str) -> str:
            (container,) = pod["containers"]
            given = variables(container) | here | environment
            words = [*(f"{name}={value}" for name, value in given.items()), sys.executable, "-m", "leftoff"]
            process = Process(["env", *words, *container["args"], "--port", "0", *flags])
            parts.callback(process.close)
            return process.url

        store = {"LEFTOFF_STORE": variables(server["containers"][0])["LEFTOFF_STORE"].replace("my-bucket", BUCKET)}
        urls = [start(server, *USUAL, **store) for _ in range(2)]
        front = start(router)
        client = parts.enter_context(httpx.Client(timeout=PATIENCE_S, headers={"Authorization": f"Bearer {KEY}"}))
        body = {"messages": [{"role": "user", "content": "where does the road end? " * 40}], "max_tokens": 4}
        path = "/v1/chat/completions"
        assert client.post(f"{urls[0]}{path}", json=body).is_success
        assert until(lambda: is_stored(client.get(f"{urls[0]}/cache").json()))
        usage = client.post(f"{urls[1]}{path}", json=body).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 0.9 * usage["prompt_tokens"]
        assert client.post(f"{front}{path}", json=body).is_success
        assert httpx.post(f"{front}{path}", json=body).status_code == 401
        hosts = variables(router["containers"][0])["LEFTOFF_ALLOWED_HOST"].split(",")
        for host in hosts:
            assert client.get(f"{front}/v1/models", headers={"Host": f"{host}:8080"}).is_success
        assert client.get(f"{front}/v1/models", headers={"Host": "elsewhere"}).status_code == 403
        assert [client.get(f"{url}/metrics").status_code for url in (front, *urls)] == [200] * 3


def is_stored(cache: dict[str, Any]) -> bool:
    (store,) = [tier for tier in cache["tiers"] if tier["name"] == "store"]
    return bool(store["entries"] and not store["waiting"])


# --- Homebrew


def test_the_formula_names_the_archive_of_the_release(tmp_path: Path) -> None:
    archive = tmp_path / f"leftoff-{__version__}.tar.gz"
    archive.write_bytes(b"an archive")
    text = filled((DEPLOY / "homebrew.rb").read_text(), archive)
    assert f"/leftoff-{__version__}.tar.gz" in text
    assert f'sha256 "{hashlib.sha256(b"an archive").hexdigest()}"' in text
    assert "@VERSION@" not in text
    if ruby := shutil.which("ruby"):
        (tmp_path / "leftoff.rb").write_text(text)
        assert run(ruby, "-c", str(tmp_path / "leftoff.rb")).returncode == 0
