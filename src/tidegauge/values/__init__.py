"""One text for every value: equal values have equal texts, in every process.

Plain JSON is written as sorted JSON. What JSON has no form for is written as a tag and JSON
(``!"set"[...]``), which no JSON text contains, so that it equals nothing else.

Values belong to the user, and reading them must not hurt the agent:

- No user code runs. Values are read by their real type, with the methods of the base class, and
  objects by their instance attributes, read by the descriptors of the interpreter.
- Time and memory are bounded. A value costs at most :data:`MAX_COST` units; long texts and arrays
  are digested in pieces.
- A value that is cyclic, larger, deeper than :data:`MAX_DEPTH` levels, or holds a state that cannot
  be read (a lock, a socket, an object of an extension module) is *not comparable*: it has no text
  and equals nothing.
"""

from tidegauge.values.attributes import (
    bases,
    class_name,
    exact_text,
    module_name,
    namespace,
    type_name,
)
from tidegauge.values.encoder import MAX_COST, MAX_DEPTH, Incomparable, ValueCache, digest_of
from tidegauge.values.exceptions import failure_text
from tidegauge.values.texts import (
    MAX_IDENTITY,
    MAX_TEXT,
    Identities,
    PlainIdentity,
    built_in,
    canonical_digest,
    canonical_pieces,
    canonical_start,
    canonical_text,
    flat_size,
    is_long,
    is_plain,
    plain_text,
    plain_tree,
)

__all__ = [
    "MAX_COST",
    "MAX_DEPTH",
    "MAX_IDENTITY",
    "MAX_TEXT",
    "Identities",
    "Incomparable",
    "PlainIdentity",
    "ValueCache",
    "bases",
    "built_in",
    "canonical_digest",
    "canonical_pieces",
    "canonical_start",
    "canonical_text",
    "class_name",
    "digest_of",
    "exact_text",
    "failure_text",
    "flat_size",
    "is_long",
    "is_plain",
    "module_name",
    "namespace",
    "plain_text",
    "plain_tree",
    "type_name",
]
