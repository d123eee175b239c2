#!/usr/bin/env python3
"""Makes the declarations of API types, and their protobuf numbers, from a release of Kubernetes.

    tools/upstream_schemas.py [--modules DIR] [--version v0.37.1] [--check]

Reads the Go types of ``k8s.io/api``, ``apimachinery``, ``apiextensions-apiserver`` and ``kube-aggregator`` in a Go module cache
(``go mod download k8s.io/api@v0.37.1`` and so on) and writes ``src/dray/apiserver/schema/*.schema`` and
``src/dray/apiserver/protobuf.numbers``. Only facts are taken: names, types, numbers and merge keys. The words in the files are
Dray's own and stay; a file's first line, the order of its kinds and which kinds it has are decided here. ``--check`` writes
nothing and fails when a file is not what the release says.

A new release: change the version in ``tests/real/upstream/go.mod`` and ``VERSION`` here, run this, read what it changed, and
run the tests.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

VERSION = "v0.37.1"
SCHEMAS = Path(__file__).parents[1] / "src/dray/apiserver/schema"
NUMBERS = SCHEMAS.parent / "protobuf.numbers"

# file -> folder of the types, and the kinds that are declared. A folder without a module is one of k8s.io/api.
FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "admissionregistration": (
        "admissionregistration/v1",
        (
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
            "MutatingWebhookConfiguration",
        ),
    ),
    "apiextensions": ("apiextensions-apiserver:pkg/apis/apiextensions/v1", ("CustomResourceDefinition",)),
    "apiregistration": ("kube-aggregator:pkg/apis/apiregistration/v1", ("APIService",)),
    "apps": ("apps/v1", ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision")),
    "authentication": ("authentication/v1", ("TokenReview", "TokenRequest", "SelfSubjectReview")),
    "authorization": (
        "authorization/v1",
        ("SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectRulesReview"),
    ),
    "autoscaling": ("autoscaling/v1", ("Scale", "HorizontalPodAutoscaler")),
    "autoscaling.v2": ("autoscaling/v2", ("HorizontalPodAutoscaler",)),
    "batch": ("batch/v1", ("Job", "CronJob")),
    "certificates": ("certificates/v1", ("CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest")),
    "coordination": ("coordination/v1", ("Lease",)),
    "core": (
        "core/v1",
        (
            "Pod",
            "Node",
            "Namespace",
            "Service",
            "Endpoints",
            "ReplicationController",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "ConfigMap",
            "Secret",
            "ServiceAccount",
            "ResourceQuota",
            "LimitRange",
            "PodTemplate",
            "Event",
            "Binding",
        ),
    ),
    "discovery": ("discovery/v1", ("EndpointSlice",)),
    "events": ("events/v1", ("Event",)),
    "flowcontrol": ("flowcontrol/v1", ("FlowSchema", "PriorityLevelConfiguration")),
    "networking": (
        "networking/v1",
        ("Ingress", "IngressClass", "NetworkPolicy", "IPAddress", "ServiceCIDR"),
    ),
    "node": ("node/v1", ("RuntimeClass",)),
    "policy": ("policy/v1", ("PodDisruptionBudget", "Eviction")),
    "rbac": ("rbac/v1", ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")),
    "resource": (
        "resource/v1",
        ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice", "DeviceTaintRule"),
    ),
    "resource.v1alpha3": ("resource/v1alpha3", ("DeviceTaintRule",)),
    "resource.v1beta1": ("resource/v1beta1", ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice")),
    "resource.v1beta2": (
        "resource/v1beta2",
        ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice", "DeviceTaintRule"),
    ),
    "scheduling": ("scheduling/v1", ("PriorityClass",)),
    "scheduling.v1alpha3": ("scheduling/v1alpha3", ("Workload", "PodGroup", "CompositePodGroup")),
    "scheduling.v1beta1": ("scheduling/v1beta1", ("Workload", "PodGroup")),
    "storage": (
        "storage/v1",
        ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"),
    ),
}
META = ("Status", "DeleteOptions", "Condition", "LabelSelector", "ObjectMeta", "ListMeta")

SCALARS = {
    "string": "string",
    "bool": "bool",
    "int": "int64",
    "int32": "int32",
    "int64": "int64",
    "uint32": "int64",
    "uint64": "int64",
    "float64": "float",
    "[]byte": "bytes",
    "byte": "string",
    "resource.Quantity": "quantity",
    "metav1.Time": "time",
    "metav1.MicroTime": "microtime",
    "Time": "time",
    "MicroTime": "microtime",
    "intstr.IntOrString": "intOrString",
    "runtime.RawExtension": "any",
    "types.UID": "string",
    "FieldsV1": "any",
    "runtime.Object": "any",
    "metav1.Duration": "string",
    "Duration": "string",
    "types.NodeName": "string",
    "JSON": "any",
    "JSONSchemaPropsOrArray": "any",
    "JSONSchemaPropsOrBool": "any",
    "JSONSchemaPropsOrStringArray": "any",
}
# Older versions borrow the words of the one that is stored; some of their structs have another name there.
BORROWED = {"resource.v1alpha3": "resource", "resource.v1beta1": "resource", "resource.v1beta2": "resource"}
RENAMED = {"BasicDevice": "Device", "DeviceRequest": "ExactDeviceRequest"}
# Lists of which an empty one says something else than none.
GIVEN = {("DeviceAttribute", name) for name in ("bools", "ints", "strings", "versions")}
# Fields that a later release than this one has, and that Dray serves already: file, struct -> Go declarations.
AHEAD = {
    (file, "DeviceRequestAllocationResult"): ('\tCompatibilityGroups map[string][]string `json:"compatibilityGroups,omitempty"`',)
    for file in ("resource", "resource.v1beta1", "resource.v1beta2")
}
# Values that are constants of another package.
ALSO = {"AddressType": {"IPv4", "IPv6"}}
PROTOCOL_TCP = {("ContainerPort", "protocol"), ("ServicePort", "protocol"), ("EndpointPort", "protocol")}

_TYPE = re.compile(r"^type (\w+) (.+?)(?: \{)?$")
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`(.*)`")
_TAG = re.compile(r'(\w+):"([^"]*)"')
_CONSTANT = re.compile(r'^(?:\t|const )\w+\s+(?:(\w+)\s+=\s+"(.*)"|=\s+(\w+)\("(.*)"\))')


@dataclass
class Member:
    """A field as Go declares it."""

    name: str
    go_type: str
    number: int = 0
    omitted: bool = False
    inline: bool = False
    zero: bool = False
    markers: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass
class GoType:
    name: str
    target: str
    markers: list[str]
    members: list[Member] = field(default_factory=list)


class Package:
    """The types of one Go package."""

    def __init__(self, folder: Path) -> None:
        self.types: dict[str, GoType] = {}
        self.constants: dict[str, set[str]] = {}
        self.imports: dict[str, str] = {}
        for file in sorted(folder.glob("*.go")):
            if not file.name.endswith("_test.go") and not file.name.startswith(("zz_", "generated", "types_swagger", "register")):
                self._read(file.read_text())

    def _read(self, text: str) -> None:
        for alias, path in re.findall(r'^\s*(\w+)? ?"k8s\.io/api/([\w/]+)"', text, re.MULTILINE):
            self.imports[alias or path.rpartition("/")[2]] = path
        comments: list[str] = []
        current: GoType | None = None
        for line in text.splitlines():
            stripped = line.strip()
            if stripped.startswith("//"):
                comments.append(stripped[2:].strip())
                continue
            if constant := _CONSTANT.match(line):
                self.constants.setdefault(constant[1] or constant[3], set()).add(constant[2] or constant[4] or "")
            if current is not None:
                if line == "}":
                    current = None
                elif found := _FIELD.match(line):
                    current.members.append(_member(found, comments))
            elif (found := _TYPE.match(line)) and "interface" not in line and "func" not in line:
                made = GoType(
                    found[1], found[2].removeprefix("= ").split("//")[0].strip(), [c for c in comments if c.startswith("+")]
                )
                self.types[made.name] = made
                current = made if made.target == "struct" else None
                made.target = made.target.removesuffix("{}")
            if stripped:
                comments = []
            elif not stripped and current is None and comments:
                comments = [comment for comment in comments if comment.startswith("+")]


def _member(found: re.Match[str], comments: list[str]) -> Member:
    tags = dict(_TAG.findall(found[3]))
    name, *options = tags.get("json", "").split(",")
    number = re.search(r",(\d+),", tags.get("protobuf", ""))
    markers = [comment for comment in comments if comment.startswith("+")]
    inline = not name
    go_type = found[2]
    omitted = any(option in ("omitempty", "omitzero") for option in options)
    return Member(
        name or go_type.lstrip("*").rpartition(".")[2],
        go_type,
        int(number[1]) if number else 0,
        omitted,
        inline,
        "omitzero" in options,
        markers,
        tags,
    )


def _place(folder: str) -> str:
    """The module and the folder in it, ``module:folder``."""
    return folder if ":" in folder else f"api:{folder}"


def _source(modules: Path, version: str, folder: str) -> Path:
    module, _, inside = _place(folder).partition(":")
    root = modules / f"k8s.io/{module}@{version}"
    if not root.is_dir():
        raise SystemExit(f"{root} is missing: run `go mod download k8s.io/{module}@{version}`")
    return root / inside


class Writer:
    """Declarations in the words of ``schema/text.py``."""

    def __init__(self, modules: Path, version: str) -> None:
        self.files = {file: Package(_source(modules, version, folder)) for file, (folder, _) in FILES.items()}
        for (file, struct), lines in AHEAD.items():
            have = {member.name for member in self.files[file].types[struct].members}
            made = [_member(found, ["+optional"]) for line in lines if (found := _FIELD.match(line))]
            self.files[file].types[struct].members += [member for member in made if member.name not in have]
        self.files["meta"] = Package(_source(modules, version, "apimachinery:pkg/apis/meta/v1"))
        self._by_folder = {folder: file for file, (folder, _) in FILES.items()}
        self._wanted: dict[str, dict[str, None]] = {file: {} for file in self.files}
        for file, (_, kinds) in FILES.items():
            for kind in kinds:
                self._reach(file, kind)
        for name in META:
            self._reach("meta", name)

    # ------------------------------------------------------------------------------------------------ reachable types

    def _reach(self, file: str, name: str) -> None:
        if name in self._wanted[file]:
            return
        found = self.files[file].types[name]
        if found.target != "struct":
            resolved = self._resolve(file, found.target)
        else:
            self._wanted[file][name] = None
            for member in self._flat(file, name):
                self._reach_type(*member[:2])
            return
        if isinstance(resolved, tuple):
            self._reach(*resolved)

    def _reach_type(self, file: str, member: Member) -> None:
        base = re.sub(r"^(\*|\[\]|map\[[\w.]+\])+", "", member.go_type if member.go_type != "[]byte" else "string")
        if member.name in ("metadata", "items") and base in ("metav1.ObjectMeta", "metav1.ListMeta"):
            return
        resolved = self._resolve(file, base)
        if isinstance(resolved, tuple):
            self._reach(*resolved)
        elif resolved == "alias" and (nested := self._alias_base(file, base)):
            self._reach(*nested)

    def _alias_base(self, file: str, go_type: str) -> tuple[str, str] | None:
        """The struct at the bottom of an alias such as ``ResourceList`` or ``ExtraValue``."""
        where = self._where(file, go_type)
        if where is None:
            return None
        found = self.files[where[0]].types.get(where[1])
        if found is None or found.target == "struct":
            return where if found is not None else None
        base = re.sub(r"^(\*|\[\]|map\[[\w.]+\])+", "", found.target)
        return self._alias_base(where[0], base) if base not in SCALARS else None

    def _where(self, file: str, go_type: str) -> tuple[str, str] | None:
        prefix, dot, name = go_type.rpartition(".")
        if not dot:
            return (file, name)
        if prefix == "metav1":
            return ("meta", name)
        folder = self.files[file].imports.get(prefix) or {"v1": "core/v1", "corev1": "core/v1", "core": "core/v1"}.get(prefix, "")
        target = self._by_folder.get(folder)
        return (target, name) if target else None

    def _resolve(self, file: str, go_type: str) -> str | tuple[str, str]:
        """A scalar's name, or the file and name of a struct. Aliases of strings and maps are followed by ``_type``."""
        if go_type in SCALARS:
            return SCALARS[go_type]
        where = self._where(file, go_type)
        if where is None:
            raise SystemExit(f"{file}: {go_type} is in no declared file")
        found = self.files[where[0]].types.get(where[1])
        if found is None:
            raise SystemExit(f"{file}: {go_type} is not declared in {where[0]}")
        if found.target == "struct":
            return where
        return "alias"

    # ------------------------------------------------------------------------------------------------------ one struct

    def _flat(self, file: str, name: str) -> list[tuple[str, Member, str]]:
        """The fields with those of inlined structs in place; the third says through which inlined struct they come."""
        made: list[tuple[str, Member, str]] = []
        for member in self.files[file].types[name].members:
            if member.inline and member.go_type in ("metav1.TypeMeta", "TypeMeta"):
                continue
            if member.inline:
                where = self._where(file, member.go_type.lstrip("*"))
                assert where is not None, f"{file}: {name} inlines {member.go_type}, which is nowhere"
                made += [(inner_file, inner, where[1]) for inner_file, inner, _ in self._flat(*where)]
            else:
                made.append((file, member, ""))
        return made

    def _is_kind(self, file: str, name: str) -> bool:
        members = self.files[file].types[name].members
        return any(m.inline and m.go_type in ("metav1.TypeMeta", "TypeMeta") for m in members) and (
            name in (FILES[file][1] if file in FILES else ("Status", "DeleteOptions"))
        )

    def _type(self, file: str, go_type: str) -> str:
        """The declared type of a Go type, with the known values of enumerations."""
        if go_type in SCALARS:
            return SCALARS[go_type]
        go_type = go_type.lstrip("*")
        if go_type in SCALARS:
            return SCALARS[go_type]
        if go_type.startswith("[]"):
            return "[]" + self._type(file, go_type[2:])
        if found := re.match(r"map\[[\w.]+\](.*)", go_type):
            return "map " + self._type(file, found[1])
        where = self._where(file, go_type)
        assert where is not None, go_type
        target, name = where
        declared = self.files[target].types[name]
        if declared.target == "struct":
            return name if target == file else f"{target.replace('.', '_')}.{name}"
        inner = self._type(target, declared.target)
        values = self.files[target].constants.get(name, set()) | ALSO.get(name, set())
        if inner == "string" and values and "+enum" in declared.markers:
            shown = "|".join('""' if value == "" else value for value in sorted(values))
            return f"string({shown})"
        return inner

    def _line(self, home: str, struct: str, file: str, member: Member) -> str:
        type_ = self._type(file, member.go_type)
        if file != home and re.fullmatch(r"(\[\]|map )*[A-Z]\w*", type_):
            raise SystemExit(f"{home}: {member.name} is inlined from {file} and names a struct of it")
        pointer = member.go_type.startswith("*")
        collection = type_.startswith(("[]", "map ")) or type_ == "bytes"
        always = not member.omitted or (
            not pointer and not collection and not member.zero and self._is_struct(file, member.go_type)
        )
        presence = "?" if pointer or (struct, member.name) in GIVEN else "!" if always else ""
        optional = "+optional" in member.markers or "+k8s:optional" in member.markers or member.omitted
        flags = [] if optional and "+required" not in member.markers else ["required"]
        if member.omitted and "+required" in member.markers and "+optional" not in member.markers:
            flags = ["required"]
        return f"  {member.name} {type_}{presence}" + "".join(
            f" {flag}" for flag in (*flags, *self._merging(file, struct, member, type_))
        )

    def _is_struct(self, file: str, go_type: str) -> bool:
        if go_type in (
            "resource.Quantity",
            "metav1.Time",
            "metav1.MicroTime",
            "Time",
            "MicroTime",
            "intstr.IntOrString",
            "runtime.RawExtension",
        ):
            return True
        if go_type in SCALARS or go_type.startswith(("[]", "map[")):
            return False
        where = self._where(file, go_type)
        return where is not None and self.files[where[0]].types[where[1]].target == "struct"

    def _merging(self, file: str, struct: str, member: Member, type_: str) -> list[str]:
        marks = dict(marker[1:].partition("=")[::2] for marker in member.markers)
        made = []
        if strategy := member.tags.get("patchStrategy"):
            key = member.tags.get("patchMergeKey", "")
            made.append(f"patch={strategy}" + (f":{key}" if key else ""))
        keys = [marker.partition("=")[2] for marker in member.markers if marker.startswith("+listMapKey=")]
        element = type_.removeprefix("[]").rpartition(".")[2]
        if keys:
            named = [f"{key}:TCP" if (element, key) in PROTOCOL_TCP and element != "EndpointPort" else key for key in keys]
            made.append("list=" + ",".join(named))
        elif marks.get("listType") == "set":
            made.append("set")
        elif marks.get("listType") == "atomic" or marks.get("mapType") == "atomic" or marks.get("structType") == "atomic":
            made.append("atomic")
        elif type_.startswith("[]") and "patchStrategy" in member.tags and "merge" in member.tags["patchStrategy"]:
            key = member.tags.get("patchMergeKey", "")
            made.append(f"list={key}" if key else "set")
        elif type_.startswith("[]"):
            made.append("atomic")
        return made

    # ----------------------------------------------------------------------------------------------------------- files

    def schema(self, file: str, before: str) -> str:
        """The text of a file. Words of the text ``before`` are kept."""
        words, head = _words(before)
        if file in BORROWED:
            lent = _words((SCHEMAS / f"{BORROWED[file]}.schema").read_text())[0]
            renamed = {
                f"{name}{key[len(there) :]}": text
                for name, there in RENAMED.items()
                for key, text in lent.items()
                if key.startswith(f"{there}.")
            }
            words = renamed | lent | words
        if file == "meta":
            package, group, kinds = "io.k8s.apimachinery.pkg.apis.meta.v1", "v1", ("Status", "DeleteOptions")
        else:
            folder, kinds = FILES[file]
            package = f"io.k8s.{_place(folder).replace(':', '.').replace('/', '.')}"
            group = _api_version(folder)
        lines = [head or f"# Kinds of {group}.", f"package {package}", f"group {group}"]
        others = sorted(name for name in self._wanted[file] if name not in kinds)
        for name in (*kinds, *others):
            lines += ["", *self._struct(file, name, words)]
        return "\n".join(lines) + "\n"

    def _struct(self, file: str, name: str, words: dict[str, str]) -> list[str]:
        kind = self._is_kind(file, name)
        markers = self.files[file].types[name].markers
        atomic = " atomic" if "+structType=atomic" in markers and not kind else ""
        head = f"{'kind' if kind else 'type'} {name}{atomic}"
        lines = [head + (f" -- {words[name]}" if name in words else "")]
        for inner_file, member, _ in sorted(self._flat(file, name), key=lambda each: each[1].name):
            if kind and member.name == "metadata" and name not in ("Status", "DeleteOptions"):
                continue
            line, key = self._line(file, name, inner_file, member), f"{name}.{member.name}"
            lines.append(line + (f" -- {words[key]}" if key in words else ""))
        if kind and name in ("Status", "DeleteOptions"):
            lines[1:] = sorted([*lines[1:], "  apiVersion string", "  kind string"])
        return lines

    def numbers(self, before: str) -> str:
        """The protobuf numbers of every declared struct. Those of files that are not made here stay as they are."""
        made = [
            f"# Protobuf field numbers of the declared structs, made by tools/upstream_schemas.py from Kubernetes {VERSION}.",
            "# Struct, then number=field, in order. A star: a message whose fields are those of the struct around.",
        ]
        for file in sorted(self.files):
            kinds = FILES[file][1] if file in FILES else ("Status", "DeleteOptions")
            others = sorted(name for name in self._wanted[file] if name not in kinds)
            inlined: dict[str, None] = {}
            made += [self._numbered(file, name, inlined) for name in (*kinds, *others)]
            made += [self._numbered(file, name, {}) for name in inlined if name not in self._wanted[file]]
        mine = {file.replace(".", "_") for file in self.files}
        lines = [line for line in before.splitlines() if line and not line.startswith("#")]
        made += [line for line in lines if line.partition(".")[0] not in mine]
        return "\n".join(made) + "\n"

    def _numbered(self, file: str, name: str, inlined: dict[str, None]) -> str:
        parts = []
        for member in self.files[file].types[name].members:
            if not member.number:
                continue
            if member.inline:
                where = self._where(file, member.go_type.lstrip("*"))
                assert where is not None
                parts.append((member.number, f"*{where[1]}"))
                inlined[where[1]] = None
            else:
                parts.append((member.number, member.name))
        return " ".join([f"{file.replace('.', '_')}.{name}", *(f"{number}={shown}" for number, shown in sorted(parts))])


def _words(text: str) -> tuple[dict[str, str], str]:
    """The words of each struct and field in an existing file, and its first line."""
    found: dict[str, str] = {}
    struct = ""
    for line in text.splitlines():
        declaration, dashes, words = line.partition(" -- ")
        if line.startswith(("kind ", "type ")):
            struct = declaration.split()[1]
            key = struct
        else:
            key = f"{struct}.{declaration.split()[0]}" if declaration.startswith("  ") else ""
        if dashes and key:
            found[key] = words
    return found, text.splitlines()[0] if text.startswith("#") else ""


_GROUPS = {
    "core": "",
    "apps": "apps",
    "batch": "batch",
    "policy": "policy",
    "autoscaling": "autoscaling",
    "authentication": "authentication.k8s.io",
    "authorization": "authorization.k8s.io",
    "rbac": "rbac.authorization.k8s.io",
    "flowcontrol": "flowcontrol.apiserver.k8s.io",
}


def _api_version(folder: str) -> str:
    name, version = _place(folder).partition(":")[2].removeprefix("pkg/apis/").split("/")
    group = _GROUPS.get(name, f"{name}.k8s.io")
    return f"{group}/{version}" if group else version


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, help="the Go module cache (default: what `go env GOMODCACHE` says)")
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when something is not as the release says")
    options = parser.parse_args()
    modules = options.modules or Path(
        subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    )
    writer = Writer(modules, options.version)
    stale = []
    targets = [*((SCHEMAS / f"{file}.schema", None) for file in writer.files), (NUMBERS, writer.numbers(NUMBERS.read_text()))]
    for path, text in targets:
        before = path.read_text() if path.exists() else ""
        made = text if text is not None else writer.schema(path.name.removesuffix(".schema"), before)
        if made != before:
            stale.append(path.name)
            if not options.check:
                path.write_text(made)
    verb = "differ from" if options.check else "were made from"
    print(f"{len(stale)} files {verb} Kubernetes {options.version}" + (f": {', '.join(stale)}" if stale else ""))
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
