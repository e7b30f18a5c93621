"""A labelled set to search in: seeded, made up, and said so.

Documents are about one of 24 topics, in words of that topic, between words that belong to none; one in four also names
somebody. A question asks in one of three ways, in equal parts:

    meaning   two words of a topic that no document uses: the topic's documents are what is wanted
    name      a name: the documents that name it are
    both      a name and such a word: documents with both are wanted most (2), those with the name alone a little (1)

So neither words nor vectors alone can answer all of them, as with people's questions; how much is gained by asking
both says nothing about any other set.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Words that documents use, then words that only questions do.
_TOPICS = """
tide sea wave shore harbour | ocean beach
rice soup onion pepper kitchen | cooking recipe
compiler program variable function code | software programming
rose soil garden seed spade | flower gardening
doctor hospital nurse patient fever | medicine illness
train railway station platform rail | locomotive travel
violin orchestra melody concert piano | music symphony
planet star telescope orbit moon | astronomy space
horse saddle stable gallop rider | equestrian pony
bank loan interest deposit credit | finance money
court judge lawyer verdict trial | legal justice
school teacher pupil lesson classroom | education learning
football goal team stadium referee | soccer sport
bread flour oven dough bakery | baking loaf
forest oak tree branch leaf | woods woodland
snow ice winter frost glacier | cold freezing
bee honey hive pollen swarm | insect beekeeper
castle knight sword tower siege | medieval fortress
wine grape vineyard barrel cellar | winery vintage
shoe leather heel lace sole | footwear boot
rain cloud storm thunder wind | weather climate
engine wheel brake clutch petrol | car vehicle
paint canvas brush colour portrait | art artist
bird wing feather nest beak | owl sparrow
"""
_FILLER = [
    "today",
    "yesterday",
    "often",
    "again",
    "perhaps",
    "later",
    "morning",
    "evening",
    "small",
    "large",
    "new",
    "old",
    "first",
    "last",
    "some",
    "many",
    "other",
    "same",
    "people",
    "place",
    "thing",
    "part",
    "week",
    "year",
    "note",
    "list",
    "page",
    "side",
    "end",
    "number",
    "way",
    "case",
    "point",
]
_ENDS = ("vorn", "meld", "quist", "brandt", "lowe", "etti", "ovic", "mund", "sted", "garde")
_STARTS = ("Kel", "Tam", "Hes", "Bor", "Ilv", "Nad", "Ros", "Wyn", "Zef", "Orl")


@dataclass(frozen=True)
class Question:
    kind: str
    text: str
    wanted: Mapping[int, int]


def labelled(documents: int = 1200, questions: int = 150, seed: int = 6) -> tuple[list[str], list[Question]]:
    """The documents, numbered from 0, and the questions with the grade of every document that is wanted."""
    chance = random.Random(seed)
    topics = [tuple(part.split() for part in line.split("|")) for line in _TOPICS.strip().splitlines()]
    names = [start + end for start in _STARTS for end in _ENDS]
    texts, about, named = list[str](), list[int](), list[str | None]()
    for _ in range(documents):
        topic = chance.randrange(len(topics))
        name = chance.choice(names) if chance.random() < 0.25 else None
        words = [*chance.sample(topics[topic][0], 3), *chance.choices(_FILLER, k=9)]
        words += [name] if name else []
        chance.shuffle(words)
        texts.append(" ".join(words))
        about.append(topic)
        named.append(name)
    asked = list[Question]()
    known = [(topic, name) for topic, name in zip(about, named, strict=True) if name]
    for number in range(questions):
        topic, name = chance.choice(known)
        words = topics[topic][1]
        kind = ("meaning", "name", "both")[number % 3]
        if kind == "meaning":
            wanted = {at: 1 for at, found in enumerate(about) if found == topic}
            asked.append(Question(kind, " ".join(words), wanted))
        elif kind == "name":
            asked.append(Question(kind, f"{name}", {at: 1 for at, found in enumerate(named) if found == name}))
        else:
            wanted = {at: 1 + (about[at] == topic) for at, found in enumerate(named) if found == name}
            asked.append(Question(kind, f"{name} {chance.choice(words)}", wanted))
    return texts, asked


def ndcg(found: Sequence[int], wanted: Mapping[int, int], k: int = 10) -> float:
    """Gain 2**grade - 1, discounted by place; against the best order there could be."""

    def gain(grades: Sequence[int]) -> float:
        return sum((2**grade - 1) / math.log2(place + 2) for place, grade in enumerate(grades[:k]))

    best = gain(sorted(wanted.values(), reverse=True))
    return gain([wanted.get(one, 0) for one in found]) / best if best else 0.0
