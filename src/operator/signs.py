"""Signs of the watches: when each showed something last, and what it has not shown. Told to Prometheus beside the probes.

A watch can die without a word: nothing comes any more, and nothing fails. Where little changes, silence alone proves nothing; a Task that a
comparison found changed and that the watch has not shown since does. Knows nothing of what is watched, and asks nobody.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

MEDIA_TYPE = "text/plain; version=0.0.4"


@dataclass(slots=True)
class Sign:
    """Of one watch: of one kind of resource, in one namespace or in all."""

    seen_at: float = field(default_factory=time.time)
    """When it showed something last, or began."""
    shown: dict[str, str] = field(default_factory=dict)
    """By uid the version that it showed last."""
    unseen: set[str] = field(default_factory=set)
    """The uids of what a comparison found in a version that the watch had not shown, since when it has shown nothing at all."""

    def saw(self) -> None:
        """Something came: an object, a list, a bookmark."""
        self.seen_at = time.time()
        self.unseen.clear()

    def saw_one(self, uid: str, version: str) -> None:
        """An object came in this version."""
        self.shown[uid] = version
        self.saw()

    def saw_end(self, uid: str) -> None:
        """An object came that is gone."""
        self.shown.pop(uid, None)
        self.saw()

    def forget(self, uid: str) -> None:
        """The object is gone, and nothing came of it."""
        self.shown.pop(uid, None)

    def compare(self, uid: str, version: str) -> None:
        """A comparison found the object in this version."""
        if not _is_as_new(self.shown.get(uid, ""), version):
            self.unseen.add(uid)


def _is_as_new(shown: str, found: str) -> bool:
    """One resource's versions are numbers of one sequence; of others it is only known whether they are the same."""
    return int(shown) >= int(found) if shown.isdigit() and found.isdigit() else shown == found


class Signs:
    """Of all watches of one process."""

    def __init__(self) -> None:
        self._signs: dict[tuple[str, str], Sign] = {}

    def of(self, resource: str, namespace: str = "") -> Sign:
        """The sign of a watch, which begins when it is asked for first; without a namespace that of all of them."""
        return self._signs.setdefault((resource, namespace), Sign())

    def page(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> str:
        """The text that Prometheus reads; `gauges` has the text and the value of each further one, by name."""
        return "".join(f"{line}\n" for line in self._lines(gauges))

    def _lines(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> Iterator[str]:
        labels = {watch: f'{{resource="{_quoted(watch[0])}",namespace="{_quoted(watch[1])}"}}' for watch in self._signs}
        yield from _head("suture_operator_watch_last_event_timestamp_seconds", "When the watch showed something last, or began.")
        for watch, sign in self._signs.items():
            yield f"suture_operator_watch_last_event_timestamp_seconds{labels[watch]} {sign.seen_at:.3f}"
        yield from _head("suture_operator_watch_unseen", "Objects that a comparison found changed, since when the watch has shown nothing.")
        for watch, sign in self._signs.items():
            yield f"suture_operator_watch_unseen{labels[watch]} {len(sign.unseen)}"
        for name, (text, value) in gauges.items():
            yield from _head(name, text)
            yield f"{name} {value():.3f}"


def _head(name: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
