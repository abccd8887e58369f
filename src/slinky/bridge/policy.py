"""Who may say what: what a namespace's jobs are in Slurm, and what its users may say about them by annotation.

Pure. Comes in: the site's rules, a namespace with its labels, and what was said about a workload. Goes out: the namespace's `Grant`; from that the sentences that refuse, or the settings with the namespace's
defaults filled in. What must stay true: the bridge's token may do anything in Slurm, so whatever is not granted is refused; a label counts only where the site says so; the same is
asked at admission and again before each submit, so there is no way round the webhook.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from slinky.bridge.annotations import JobSettings, in_short, suffix_of
from slinky.bridge.cross_namespace import reaching_terms
from slinky.bridge.gres_needs import too_few
from slinky.bridge.keys import POLICY, SETTINGS
from slinky.bridge.policy_settings import MOST_GRACE_SECONDS, NAMED, PolicyGrant, PolicyRule, PriorityClass
from slinky.bridge.settings import Settings, matches
from slinky.bridge.workload import Workload
from slinky.kube.objects import Affinity

__all__ = ["Grant", "Policy", "PolicyError"]

ANY = "*"
ROOT, ROOTS_GROUP = ("root", "0"), "0"
# Key of the policy → field of JobSettings.
FIELDS = {key: {"user": "user_id", "group": "group_id"}.get(key, key) for key in NAMED}
WORDS = {"qos": "QoS", "wckey": "WCKey"}


NEVER = (
    "Slurm schedules nothing in namespace {}, because Kubernetes, Slurm or the bridge runs there. "
    "Delete the pod; its controller creates another for the default scheduler"
)


class PolicyError(ValueError):
    """The namespace may not have what the workload asks for: one sentence a problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__(in_short(problems))


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one namespace has and may. `defaults` and `allowed` are by key (`user`, `account`, …); `licenses` None is all. `gres` is the site's mapping: nobody may say fewer than his pods ask for."""

    namespace: str
    defaults: Mapping[str, str] = {}
    allowed: Mapping[str, frozenset[str]] = {}
    licenses: frozenset[str] | None = None
    max_priority: int = 0
    hold: bool = True
    min_nice: int = 0
    exclusive: bool = True
    dependency: bool = True
    cross_namespace_affinity: bool = True
    time_limit: int = 0
    max_time_limit: int = 0
    max_grace: int = 0
    window: int = 0
    signals: bool = True
    classes: Mapping[str, PriorityClass] = {}
    gres: Mapping[str, str] = {}
    nothing: str = ""  # why no job of this namespace may be submitted at all

    def refusals(self, said: JobSettings, priority_class: str = "", time_limit: int | None = None) -> list[str]:
        """What is asked for and not granted. `time_limit` is what holds where no annotation says one."""
        return [*self._names(said), *self._order(said), *self._rest(said, time_limit), *self._class(said, priority_class)]

    def settle(self, said: JobSettings, priority_class: str = "", time_limit: int | None = None) -> JobSettings:
        """With the class's word and the namespace's defaults where nothing was said."""
        known = self.classes.get(priority_class) or PriorityClass()
        found: dict[str, object] = {field: getattr(said, field) or self.defaults.get(key) or None for key, field in FIELDS.items()}
        found["group_id"] = self._group_of(said)
        found["qos"] = said.qos or known.qos or self.defaults.get("qos") or None
        found["priority"] = said.priority if said.priority is not None else known.priority
        found["nice"] = said.nice if said.nice is not None else known.nice
        found["time_limit"] = said.time_limit or time_limit or self.time_limit or self.max_time_limit or None
        return msgspec.structs.replace(said, **found)

    def settled(self, workload: Workload) -> Workload:
        """The workload as it is to be submitted. Its class is its group's, or that of its first pod. Raises PolicyError."""
        if self.nothing:
            raise PolicyError([self.nothing])
        priority_class = workload.priority_class or (workload.pods[0].spec.priority_class_name if workload.pods else "")
        said = workload.settings
        longest = max((pod.spec.termination_grace_period_seconds or 0 for pod in workload.everyone), default=0)
        problems = [*self.refusals(said, priority_class, workload.time_limit), *self.too_long(longest)]
        problems += next((found for pod in workload.everyone if (found := self.reaching(pod.spec.affinity))), [])
        if problems := [*problems, *self.groupless(said), *too_few(said.gres, workload.everyone, self.gres)]:
            raise PolicyError(problems)
        return msgspec.structs.replace(workload, settings=self.settle(said, priority_class, workload.time_limit))

    def groupless(self, said: JobSettings) -> list[str]:
        """A user without a group: Slurm would run the job as group 0, which is root's. Slurm cannot be asked for a user's own group."""
        user = said.user_id or self.defaults.get("user")
        if not user or self._group_of(said):
            return []
        whose = _annotation("user_id", user) if said.user_id else f"jobs of namespace {self.namespace} run as user {user!r}"
        why = f"{whose}, and no group is named, so Slurm would run the job as group 0 (root)"
        if said.user_id and self._may_name_some("group"):
            return [f"{why}: add annotation {SETTINGS}{suffix_of('group_id')} with the user's group (`id -gn {user}`)"]
        return [f"{why}: an administrator must set `group` (or `groups`) in the policy of namespace {self.namespace}"]

    def _group_of(self, said: JobSettings) -> str | None:
        """The namespace's own group is that of its own user, or, where it has no user, of whichever user is named."""
        user, own = said.user_id or self.defaults.get("user"), self.defaults.get("user")
        group = self.defaults.get("group") if user == own or not own else None
        return said.group_id or group or (ROOTS_GROUP if user in ROOT else None)

    def _may_name_some(self, key: str) -> bool:
        return bool(self.allowed.get(key) or self._own(key))

    def too_long(self, grace: int | None) -> list[str]:
        """A grace period: what the pod has then, Slurm may have given to others."""
        if not self.max_grace or (grace or 0) <= self.max_grace:
            return []
        return [f"spec.terminationGracePeriodSeconds is {grace}, and namespace {self.namespace} may have {self.max_grace} at most"]

    def reaching(self, affinity: Affinity | None) -> list[str]:
        """Required affinity to pods of other namespaces, where the namespace may have none."""
        if self.cross_namespace_affinity:
            return []
        why = f"reaches into other namespaces, and required affinity of namespace {self.namespace} may not"
        advice = f"(policy `crossNamespaceAffinity`): leave it out, or name {self.namespace} alone in `namespaces`"
        return [f"{place} {why} {advice}" for place in reaching_terms(affinity, self.namespace)]

    def _names(self, said: JobSettings) -> Iterator[str]:
        for key, field in FIELDS.items():
            for name in filter(None, (getattr(said, field) or "").split(",")):
                if not self._may_name(key, name):
                    yield f"{_annotation(field, name)}, and {self._may(key)}"
        for name in _license_names(said.licenses):
            if self.licenses is not None and name not in self.licenses:
                yield f"{_annotation('licenses', said.licenses)}, and namespace {self.namespace} may have {_list(self.licenses)}"

    def _order(self, said: JobSettings) -> Iterator[str]:
        """What decides who goes first."""
        if said.priority is not None and (why := self._priority(said.priority)):
            yield f"{_annotation('priority', said.priority)}, and {why}"
        if said.nice is not None and said.nice < self.min_nice:
            yield f"{_annotation('nice', said.nice)}, and {self._nice()}"

    def _rest(self, said: JobSettings, time_limit: int | None) -> Iterator[str]:
        if said.exclusive and not self.exclusive:
            yield f"{_annotation('exclusive', {'none': 'true'}.get(said.exclusive, said.exclusive))}, and namespace {self.namespace} must share its nodes: leave it out"
        if said.dependency and not self.dependency:
            yield f"{_annotation('dependency', said.dependency)}, and namespace {self.namespace} may name no jobs to wait for: leave it out"
        if said.signal and not self.signals:
            yield f"{_annotation('signal', said.signal.name)}, and the site delivers no signals (checkpointSignals is off): leave it out"
        if self.max_time_limit and (said.time_limit or time_limit or 0) > self.max_time_limit:
            what = (
                _annotation("time_limit", f"{said.time_limit} minutes")
                if said.time_limit
                else f"activeDeadlineSeconds is {time_limit} minutes"
            )
            yield f"{what}, and namespace {self.namespace} may have {self.max_time_limit} at most"

    def _class(self, said: JobSettings, name: str) -> Iterator[str]:
        """The class's word, where no annotation goes before it."""
        known = self.classes.get(name)
        if known is None:
            return
        if known.qos and said.qos is None and not self._may_name("qos", known.qos):
            yield f"spec.priorityClassName {name} means QoS {known.qos}, and {self._may('qos')}"
        if known.priority is not None and said.priority is None and (why := self._priority(known.priority)):
            yield f"spec.priorityClassName {name} means priority {known.priority}, and {why}"
        if known.nice is not None and said.nice is None and known.nice < self.min_nice:
            yield f"spec.priorityClassName {name} means nice {known.nice}, and {self._nice()}"

    def _may_name(self, key: str, name: str) -> bool:
        allowed = self.allowed.get(key, frozenset())
        return ANY in allowed or name in allowed or name in self._own(key)

    def _own(self, key: str) -> list[str]:
        """The default, which for partitions may be several."""
        return [name for name in self.defaults.get(key, "").split(",") if name]

    def _may(self, key: str) -> str:
        names = sorted({*self.allowed.get(key, ()), *self._own(key)})
        word = WORDS.get(key, key)
        return (
            f"namespace {self.namespace} may name {_list(names)}"
            if names
            else f"namespace {self.namespace} may name no {word}: leave it out"
        )

    def _priority(self, number: int) -> str:
        if number == 0:
            return "" if self.hold else f"jobs of namespace {self.namespace} may not be held: leave it out"
        if number <= self.max_priority:
            return ""
        most = f"{self.max_priority} is the highest that namespace {self.namespace} may set"
        return most if self.max_priority else f"namespace {self.namespace} may set none: leave it out; Slurm reckons it"

    def _nice(self) -> str:
        return f"{self.min_nice} is the lowest that namespace {self.namespace} may set"


class Policy:
    """The site's rules, made ready. `needs_labels`: whether a namespace's labels make a difference."""

    def __init__(self, settings: Settings) -> None:
        self._rules = settings.policy.rules
        self._default = settings.policy.default
        self._partition = settings.partition
        self._window = settings.windows.namespace
        self._signals = settings.checkpoint_signals
        self._never = settings.never_managed
        self._gres = settings.gres
        self._classes = {each.name: each for each in settings.priority_classes}
        said = [self._default, *self._rules]
        self.needs_labels = any(grant.from_labels for grant in said) or any(rule.selector is not None for rule in self._rules)

    def grant(self, namespace: str, labels: Mapping[str, str]) -> Grant:
        rule = next((rule for rule in self._rules if _is_for(rule, namespace, labels)), self._default)
        said = _over(rule, self._default)
        defaults = {"partition": self._partition}
        for key in NAMED:
            name = labels.get(POLICY + key) if key in (said.from_labels or ()) else None
            if name := name or getattr(said, key):
                defaults[key] = name
        licenses = (ANY,) if said.licenses is None else said.licenses
        return Grant(
            namespace=namespace,
            defaults=defaults,
            allowed={key: frozenset(getattr(said, plural) or ()) for key, plural in NAMED.items()},
            licenses=None if ANY in licenses else frozenset(licenses),
            max_priority=said.max_priority or 0,
            hold=said.hold is not False,
            min_nice=said.min_nice or 0,
            exclusive=said.exclusive is not False,
            dependency=said.dependency is not False,
            cross_namespace_affinity=said.cross_namespace_affinity is not False,
            time_limit=said.time_limit or 0,
            max_time_limit=said.max_time_limit or 0,
            max_grace=MOST_GRACE_SECONDS if said.max_grace_seconds is None else said.max_grace_seconds,
            window=said.window or self._window,
            signals=self._signals,
            classes=self._classes,
            gres=self._gres,
            nothing=NEVER.format(namespace) if namespace in self._never else "",
        )


def _over(rule: PolicyGrant, default: PolicyGrant) -> PolicyGrant:
    """What the rule says, and the default's word for the rest."""
    own = {name: value for name in PolicyGrant.__struct_fields__ if (value := getattr(rule, name)) is not None}
    return msgspec.structs.replace(default, **own)


def _is_for(rule: PolicyRule, namespace: str, labels: Mapping[str, str]) -> bool:
    return namespace in rule.namespaces or (rule.selector is not None and matches(rule.selector, labels))


def _annotation(field: str, value: object) -> str:
    return f"annotation {SETTINGS}{suffix_of(field)} is {str(value)!r}"


def _license_names(said: str | None) -> list[str]:
    return [re.split(r"[:=]", word)[0] for word in re.split(r"[,;|]", said)] if said else []


def _list(names: Sequence[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names)) + " only" if names else "none"
