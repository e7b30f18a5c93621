"""A synthetic labelled set for search, generated from a seed.

Each document has words of one of 24 topics among filler words; one in four also contains a name. A third of the
questions each are of these kinds:

    meaning   two words of a topic that no document uses; relevant are the topic's documents
    name      a name; relevant are the documents that contain it
    both      a name and such a word; documents with both have grade 2, those with the name alone grade 1

So neither full-text nor vector search alone can answer all of them, as with real questions. The gain of hybrid search
on this set says nothing about any other set.
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
class LabelledQuery:
    kind: str
    text: str
    grades: Mapping[int, int]


def labelled(documents: int = 1200, questions: int = 150, seed: int = 6) -> tuple[list[str], list[LabelledQuery]]:
    """The documents, numbered from 0, and the questions with the grades of their relevant documents."""
    chance = random.Random(seed)
    topics = [tuple(part.split() for part in line.split("|")) for line in _TOPICS.strip().splitlines()]
    names = [start + end for start in _STARTS for end in _ENDS]
    texts, topic_of, name_of = list[str](), list[int](), list[str | None]()
    for _ in range(documents):
        topic = chance.randrange(len(topics))
        name = chance.choice(names) if chance.random() < 0.25 else None
        words = [*chance.sample(topics[topic][0], 3), *chance.choices(_FILLER, k=9)]
        words += [name] if name else []
        chance.shuffle(words)
        texts.append(" ".join(words))
        topic_of.append(topic)
        name_of.append(name)
    result = list[LabelledQuery]()
    named_documents = [(topic, name) for topic, name in zip(topic_of, name_of, strict=True) if name]
    for number in range(questions):
        topic, name = chance.choice(named_documents)
        words = topics[topic][1]
        kind = ("meaning", "name", "both")[number % 3]
        if kind == "meaning":
            grades = {document: 1 for document, other in enumerate(topic_of) if other == topic}
            result.append(LabelledQuery(kind, " ".join(words), grades))
        elif kind == "name":
            result.append(
                LabelledQuery(kind, f"{name}", {document: 1 for document, other in enumerate(name_of) if other == name})
            )
        else:
            grades = {
                document: 1 + (topic_of[document] == topic) for document, other in enumerate(name_of) if other == name
            }
            result.append(LabelledQuery(kind, f"{name} {chance.choice(words)}", grades))
    return texts, result


def ndcg(ranking: Sequence[int], grades: Mapping[int, int], k: int = 10) -> float:
    """Normalised discounted cumulative gain, with gain 2**grade - 1."""

    def dcg(ordered: Sequence[int]) -> float:
        return sum((2**grade - 1) / math.log2(rank + 2) for rank, grade in enumerate(ordered[:k]))

    ideal = dcg(sorted(grades.values(), reverse=True))
    return dcg([grades.get(document, 0) for document in ranking]) / ideal if ideal else 0.0
