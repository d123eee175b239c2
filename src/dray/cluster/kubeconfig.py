"""How to reach an API server and as whom: kubeconfig files, exec plugins, in-cluster service accounts.

``load`` merges the files of ``KUBECONFIG`` as kubectl does (the first file that sets a name wins; paths inside a file are
relative to that file) and gives an ``Access``. Nothing here talks to the API server. Every error names the file, the
context and the user or cluster that is wrong.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from dray.api.times import parse_time
from dray.cluster.proxies import is_http, proxy_for, without_password

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FILES_SECONDS: Final = 60.0
FILES_FAILED_SECONDS: Final = 5.0
EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_TIMEOUT_SECONDS: Final = 60.0
EXEC_FAILED_SECONDS: Final = 5.0
EXPIRY_MARGIN_SECONDS: Final = 10.0
_IN_HEADERS: Final = "!#$&'*+-.^_`|~"

log = logging.getLogger(__name__)


class KubeconfigError(Exception):
    """The kubeconfig cannot be used as it is; the user who wrote it must act."""


class Identity(msgspec.Struct, frozen=True):
    """What proves who we are at one moment: a bearer token, a client certificate with its key, or both."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    basic: tuple[str, str] | None = None

    def headers(self) -> dict[str, str]:
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.basic is not None:
            pair = base64.b64encode(":".join(self.basic).encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


class Credentials:
    """The current identity."""

    async def identity(self) -> Identity:
        raise NotImplementedError

    def refresh(self, refused: Identity) -> None:
        """The server said 401 to this one: forget it. Of many requests that are refused together the first makes it anew."""


class Fixed(Credentials):
    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def identity(self) -> Identity:
        return self._identity


class Files(Credentials):
    """An identity in files that somebody else rotates: read again once a minute. While they cannot be read, because they are
    being replaced, what they said before stays in use."""

    def __init__(self, read: Callable[[], Identity], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._due = float("-inf")
        self._identity: Identity | None = None
        # What was said last of why they cannot be read, while they cannot.
        self._said = ""

    async def identity(self) -> Identity:
        if self._identity is None or self._clock() > self._due:
            self._identity = self._again(self._identity)
        return self._identity

    def refresh(self, refused: Identity) -> None:
        if self._identity is refused:
            self._due = float("-inf")

    def _again(self, known: Identity | None) -> Identity:
        try:
            found = self._read()
        except KubeconfigError as error:
            if known is None:
                raise
            if str(error) != self._said:
                log.warning("cannot read the credentials again, still using the old ones", extra={"error": str(error)})
            self._said, self._due = str(error), self._clock() + FILES_FAILED_SECONDS
            return known
        self._said, self._due = "", self._clock() + FILES_SECONDS
        return known if known == found else found


class ExecPlugin(Credentials):
    """Credentials from a command (``users[].user.exec``), kept until they expire. A failure is the answer to all who ask within
    the next seconds: a command may open a browser, and many requests ask at once."""

    def __init__(self, spec: Mapping[str, Any], where: str, base: Path, cluster: Mapping[str, Any]) -> None:
        self._where = f"{where}: exec"
        self._version = str(spec.get("apiVersion") or "")
        if self._version not in EXEC_VERSIONS:
            raise KubeconfigError(f"{self._where}.apiVersion is {self._version!r}; use one of {', '.join(EXEC_VERSIONS)}")
        command = str(spec.get("command") or "")
        if not command:
            raise KubeconfigError(f"{self._where}.command is empty")
        relative = not os.path.isabs(command) and os.sep in command
        self._command = [str(base / command) if relative else command, *map(str, spec.get("args") or ())]
        self._environment = {str(pair["name"]): str(pair["value"]) for pair in spec.get("env") or ()}
        self._hint = str(spec.get("installHint") or "")
        self._info = {"interactive": False, **({"cluster": dict(cluster)} if spec.get("provideClusterInfo") else {})}
        self._lock = asyncio.Lock()
        self._cached: tuple[Identity, float] | None = None
        self._failed: tuple[str, float] | None = None

    async def identity(self) -> Identity:
        async with self._lock:
            if self._cached is None or time.time() >= self._cached[1] - EXPIRY_MARGIN_SECONDS:
                self._cached = await self._made()
            return self._cached[0]

    def refresh(self, refused: Identity) -> None:
        if self._cached is not None and self._cached[0] is refused:
            self._cached = None

    async def _made(self) -> tuple[Identity, float]:
        if self._failed is not None and 0 <= time.time() - self._failed[1] < EXEC_FAILED_SECONDS:
            raise KubeconfigError(self._failed[0])
        try:
            made = self._credential(await self._run())
        except KubeconfigError as error:
            self._failed = (str(error), time.time())
            raise
        self._failed = None
        return made

    async def _run(self) -> bytes:
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": self._info}
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment
            )
        except OSError as error:
            hint = f"\n{self._hint}" if self._hint else ""
            raise KubeconfigError(f"{self._where}: cannot run {self._command[0]!r}: {error.strerror}{hint}") from error
        try:
            out, err = await asyncio.wait_for(process.communicate(), EXEC_TIMEOUT_SECONDS)
        except TimeoutError:
            raise KubeconfigError(f"{self._where}: {self._command[0]!r} did not end in {EXEC_TIMEOUT_SECONDS:.0f} s") from None
        finally:
            # Also where whoever asked gives up, as a leader election does: else one more would hang with every try.
            if process.returncode is None:
                process.kill()
        if process.returncode != 0:
            said = err.decode(errors="replace").strip()[:500]
            raise KubeconfigError(f"{self._where}: {self._command[0]!r} exited with {process.returncode}: {said}")
        return out

    def _credential(self, out: bytes) -> tuple[Identity, float]:
        try:
            answer = msgspec.json.decode(out)
            status = answer["status"]
            version, expires = answer.get("apiVersion"), status.get("expirationTimestamp")
            until = parse_time(expires) if expires else float("inf")
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise KubeconfigError(f"{self._where}: {self._command[0]!r} did not print an ExecCredential with a status") from error
        if version != self._version:
            raise KubeconfigError(
                f"{self._where}: {self._command[0]!r} answered with apiVersion {version!r}, not {self._version!r}"
            )
        certificate, key = (str(status.get(field) or "").encode() for field in ("clientCertificateData", "clientKeyData"))
        identity = Identity(str(status.get("token") or ""), certificate, key)
        if not identity.token and not (certificate and key):
            raise KubeconfigError(
                f"{self._where}: {self._command[0]!r} gave neither a token nor a client certificate with its key"
            )
        return identity, until


class Access(msgspec.Struct, frozen=True):
    """One API server and one user, ready to connect with."""

    server: str
    credentials: Credentials
    certificate_authority: bytes = b""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    namespace: str = "default"
    context: str = ""
    impersonation: tuple[tuple[str, str], ...] = ()

    def tls(self, identity: Identity) -> ssl.SSLContext | None:
        """A TLS context that trusts this server and shows the identity's certificate; None for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cadata=self.certificate_authority.decode() or None)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise KubeconfigError(f"context {self.context!r}: the certificate authority is not PEM: {error}") from error
        if self.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if identity.certificate:
            _load_certificate(context, identity)
        return context


def in_cluster(root: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Access:
    """The service account of the pod that this process runs in."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise KubeconfigError(
            "no kubeconfig found and not in a cluster (KUBERNETES_SERVICE_HOST is not set); give --kubeconfig FILE, or make a"
            " cluster with `dray up`"
        )
    host = f"[{host}]" if ":" in host else host
    token, namespace = root / "token", root / "namespace"
    _token(token, "in-cluster service account token")
    return Access(
        server=f"https://{host}:{port}",
        credentials=Files(lambda: Identity(_token(token, "in-cluster service account token"))),
        certificate_authority=_read(root / "ca.crt", "in-cluster certificate authority"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        context="in-cluster",
    )


def load(path: str | Path | None = None, context: str = "", environment: Mapping[str, str] = os.environ) -> Access:
    """Access from ``path``, else the files of KUBECONFIG, else ~/.kube/config, else the pod's service account; through the
    proxy that the kubeconfig names, else the one that the environment names."""
    files = _files(path, environment)
    access = _access(_Merged(files), context) if files else in_cluster(environment=environment)
    proxy = access.proxy_url or proxy_for(access.server, environment)
    if proxy and not is_http(proxy):
        named = "kubeconfig" if access.proxy_url else "environment"
        raise KubeconfigError(
            f"the {named} names the proxy {without_password(proxy)}; Dray supports http:// and https:// proxies"
        )
    return msgspec.structs.replace(access, proxy_url=proxy)


def _files(path: str | Path | None, environment: Mapping[str, str]) -> list[Path]:
    if path is not None:
        if not Path(path).exists():
            raise KubeconfigError(f"kubeconfig {path} does not exist")
        return [Path(path)]
    if named := [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]:
        if not (existing := [file for file in named if file.exists()]):
            raise KubeconfigError(f"none of the files in KUBECONFIG exists: {', '.join(map(str, named))}")
        return existing
    home = Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"
    return [home] if home.exists() else []


class _Merged:
    """Several kubeconfig files as one. Each named entry remembers the file that it came from."""

    def __init__(self, files: list[Path]) -> None:
        self.names = ", ".join(map(str, files))
        self.current = ""
        self._entries: dict[tuple[str, str], tuple[dict[str, Any], Path]] = {}
        for file in files:
            self._add(file)

    def _add(self, file: Path) -> None:
        # Takes time to load, and in a pod there is no file.
        import yaml

        from dray.api import yaml_text

        try:
            content = yaml_text.document(file.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise KubeconfigError(f"kubeconfig {file} {yaml_text.unreadable(error)}") from error
        if content is not None and not isinstance(content, dict):
            raise KubeconfigError(f"kubeconfig {file} is not a mapping")
        self.current = self.current or str((content or {}).get("current-context") or "")
        for section, single in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            for entry in (content or {}).get(section) or ():
                if not isinstance(entry, dict) or "name" not in entry:
                    raise KubeconfigError(f"kubeconfig {file}: an entry of {section} has no name")
                self._entries.setdefault((single, str(entry["name"])), (entry.get(single) or {}, file))

    def entry(self, single: str, name: str, wanted_by: str) -> tuple[dict[str, Any], Path]:
        found = self._entries.get((single, name))
        if found is None:
            known = ", ".join(sorted(n for s, n in self._entries if s == single)) or "none"
            raise KubeconfigError(f"kubeconfig {self.names}: {wanted_by} {single} {name!r}, which is not there (known: {known})")
        return found


def _access(merged: _Merged, wanted: str) -> Access:
    name = wanted or merged.current
    if not name:
        raise KubeconfigError(f"kubeconfig {merged.names}: no current-context is set; choose one with --context")
    context, _ = merged.entry("context", name, "asked for" if wanted else "current-context names")
    cluster, cluster_file = merged.entry("cluster", str(context.get("cluster") or ""), f"context {name!r} names")
    server = str(cluster.get("server") or "").rstrip("/")
    where = f"kubeconfig {cluster_file}: cluster {context.get('cluster')!r}"
    if not is_http(server):
        raise KubeconfigError(f"{where}: server {server!r} is not an http(s) URL")
    authority = _data_or_file(cluster, "certificate-authority", cluster_file.parent, where)
    return Access(
        server=server,
        credentials=_credentials(merged, context, name, _exec_cluster(cluster, server, authority)),
        certificate_authority=authority,
        insecure_skip_tls_verify=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        proxy_url=str(cluster.get("proxy-url") or ""),
        namespace=str(context.get("namespace") or "default"),
        context=name,
        impersonation=_impersonation(merged, context, name),
    )


def _exec_cluster(cluster: dict[str, Any], server: str, authority: bytes) -> dict[str, Any]:
    """The cluster as exec plugins are told of it (``provideClusterInfo``)."""
    described: dict[str, Any] = {"server": server}
    for source in ("insecure-skip-tls-verify", "tls-server-name", "proxy-url"):
        if cluster.get(source):
            described[source] = cluster[source]
    if authority:
        described["certificate-authority-data"] = base64.b64encode(authority).decode()
    return described


def _credentials(merged: _Merged, context: dict[str, Any], context_name: str, cluster: dict[str, Any]) -> Credentials:
    name = str(context.get("user") or "")
    if not name:
        return Fixed(Identity())
    user, file = merged.entry("user", name, f"context {context_name!r} names")
    where = f"kubeconfig {file}: user {name!r}"
    if user.get("exec"):
        return ExecPlugin(user["exec"], where, file.parent, cluster)
    if user.get("auth-provider"):
        raise KubeconfigError(f"{where}: auth-provider is no longer supported by Kubernetes; use an exec plugin")
    identity = _identity(user, file.parent, where)
    rotated = any(user.get(field) for field in ("tokenFile", "client-certificate", "client-key"))
    return Files(lambda: _fitting(_identity(user, file.parent, where))) if rotated else Fixed(identity)


def _impersonation(merged: _Merged, context: dict[str, Any], context_name: str) -> tuple[tuple[str, str], ...]:
    """The headers that ask the server to treat us as somebody else: ``as`` and what goes with it."""
    name = str(context.get("user") or "")
    if not name:
        return ()
    user, file = merged.entry("user", name, f"context {context_name!r} names")
    groups, uid, extra = user.get("as-groups") or (), user.get("as-uid"), user.get("as-user-extra") or {}
    if not user.get("as"):
        if groups or uid or extra:
            raise KubeconfigError(f"kubeconfig {file}: user {name!r}: as-groups, as-uid and as-user-extra need `as`")
        return ()
    headers = [("Impersonate-User", str(user["as"])), *(("Impersonate-Group", str(group)) for group in groups)]
    if uid:
        headers.append(("Impersonate-Uid", str(uid)))
    # What the name of a header cannot contain is percent-encoded.
    for key, values in extra.items():
        headers += ((f"Impersonate-Extra-{quote(str(key), safe=_IN_HEADERS)}", str(value)) for value in values or ())
    return tuple(headers)


def _identity(user: dict[str, Any], base: Path, where: str) -> Identity:
    """What the entry of a user says now, and the files that it names."""
    certificate = _data_or_file(user, "client-certificate", base, where)
    key = _data_or_file(user, "client-key", base, where)
    if bool(certificate) != bool(key):
        raise KubeconfigError(f"{where}: client-certificate and client-key must be given together")
    basic = (str(user["username"]), str(user.get("password") or "")) if user.get("username") else None
    file = user.get("tokenFile")
    token = _token(base / str(file), f"{where}: tokenFile") if file else str(user.get("token") or "")
    return Identity(token, certificate, key, basic)


def _fitting(identity: Identity) -> Identity:
    """Of a certificate and its key in files one may be replaced already, and the other not yet."""
    if identity.certificate:
        _load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), identity)
    return identity


def _data_or_file(entry: dict[str, Any], field: str, base: Path, where: str) -> bytes:
    if data := entry.get(f"{field}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error as error:
            raise KubeconfigError(f"{where}: {field}-data is not base64: {error}") from error
    if path := entry.get(field):
        return _read(base / str(path), f"{where}: {field}")
    return b""


def _token(path: Path, what: str) -> str:
    """The token in a file. Without one the server would take us for somebody unknown, and say only what that one may not do."""
    try:
        token = _read(path, what).decode().strip()
    except UnicodeDecodeError as error:
        raise KubeconfigError(f"{what}: {path} contains no token, but binary data") from error
    if not token:
        raise KubeconfigError(f"{what}: the file {path} is empty")
    return token


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{what}: cannot read {path}: {error.strerror}") from error


def _load_certificate(context: ssl.SSLContext, identity: Identity) -> None:
    """OpenSSL loads a key only from a file, so it lies in one, readable by us alone, for that moment."""
    import tempfile  # takes time to load, and few have certificates

    with tempfile.NamedTemporaryFile(prefix="dray-", suffix=".pem") as file:
        file.write(identity.certificate + b"\n" + identity.key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            raise KubeconfigError(f"the client certificate and its key do not load: {error.reason or error}") from error
