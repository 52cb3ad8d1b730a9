"""How many leaks the detector finds, by form, and how many honest replies it calls leaks.

    python -m benchmarks.leaks [--set seen|held-out|honest|all] [--cases N] [--form NAME] [--seed N]

Each form gives a drawn number of references away (`leak_references.py`), in the turns of the form and cut into three
turns. A dialogue is found if any of its replies is called a leak. The forms of `leak_forms_held_out.py` are for those
who judge the detector: its author does not read them. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks import leak_forms_held_out, leak_forms_honest, leak_forms_seen
from benchmarks.leak_references import Reference, references
from benchmarks.leak_translators import Form, Untranslatable
from sweet.humans.leaks.find import is_leak
from sweet.stages.intervals import wilson
from sweet.tasks.base import Message

ASKED = ("Thank you. What else should I know?", "Could you tell me more about the special cases?", "And what then?")


def share(found: Sequence[bool]) -> dict[str, Any]:
    """Return a share with its 95 % Wilson interval."""
    part = sum(found) / len(found)
    interval = [round(bound, 4) for bound in wilson(part, len(found))]
    return {"share": round(part, 4), "found": sum(found), "of": len(found), "interval": interval}


def pieces(reply: str) -> list[str]:
    """Return a reply cut into three at line ends, or at spaces, or anywhere, whichever comes first that can be."""
    for end in ("\n", " ", ""):
        parts = reply.split(end) if end else list(reply)
        if len(parts) >= 3:
            cuts = [len(parts) * i // 3 for i in range(4)]
            return [end.join(parts[start:stop]) for start, stop in pairwise(cuts)]
    return [reply]


class Detector:
    """Asks the detector about dialogues, and measures its time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.replies = 0

    def finds(self, reference: Reference, replies: Iterable[str]) -> bool:
        """Return whether a reply of the dialogue is called a leak."""
        said = [Message(role="user", content=reference.request), Message(role="assistant", content=ASKED[0])]
        for i, reply in enumerate(replies, 1):
            start = time.process_time()
            found = is_leak(reference.source, reference.request, said, reply)
            self.seconds += time.process_time() - start
            self.replies += 1
            if found:
                return True
            said.append(Message(role="user", content=reply))
            said.append(Message(role="assistant", content=ASKED[i % len(ASKED)]))
        return False


def measure(forms: Mapping[str, tuple[str, Form]], cases: int, seed: int, *, cut: bool) -> dict[str, Any]:
    """Return what the detector calls leaks, by form and by class; `cut`: also of dialogues of one reply in pieces."""
    detector, skipped = Detector(), 0
    found: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for name, (kind, form) in forms.items():
        rng = random.Random(f"{seed} {name}")
        rendered = 0
        for reference in rng.sample(references(), len(references())):
            if rendered == cases:
                break
            try:
                replies = form(reference.source, rng)
            except Untranslatable:
                replies = None
            if replies is None:
                skipped += 1
                continue
            rendered += 1
            ways = {"whole": replies, **({"in pieces": pieces(replies[0])} if cut and len(replies) == 1 else {})}
            for way, said in ways.items():
                is_found = detector.finds(reference, said)
                for key in (f"form {name}", f"class {kind}", "all"):
                    found[way][key].append(is_found)

    def part(way: str, prefix: str) -> dict[str, Any]:
        return {k.removeprefix(prefix): share(v) for k, v in found[way].items() if k.startswith(prefix)}

    figures = {way: {"all": share(found[way]["all"]), "classes": part(way, "class ")} for way in found}
    return {
        **figures,
        "forms": {way: part(way, "form ") for way in found},
        "skipped": skipped,
        "cpu_ms_per_reply": round(1000 * detector.seconds / max(detector.replies, 1), 2),
    }


def sets(wanted: str) -> dict[str, dict[str, tuple[str, Form]]]:
    """Return the sets of forms by name."""
    found = {"seen": leak_forms_seen, "held-out": leak_forms_held_out, "honest": leak_forms_honest}
    return {name: module.FORMS for name, module in found.items() if wanted in ("all", name)}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=("seen", "held-out", "honest", "all"), default="all")
    parser.add_argument("--cases", type=int, default=20, help="references for each form, at most those that there are")
    parser.add_argument("--form", help="only this form")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    result = {}
    for name, forms in sets(args.set).items():
        chosen = {k: v for k, v in forms.items() if args.form in (None, k)}
        if chosen:
            result[name] = measure(chosen, args.cases, args.seed, cut=name != "honest")
    if not result:
        parser.error(f"--form {args.form}: the sets have no such form")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
