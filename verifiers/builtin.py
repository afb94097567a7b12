"""Importing this module registers every built-in verifier."""

from r1zero.verifiers import answer as answer
from r1zero.verifiers import code as code
from r1zero.verifiers import math as math
from r1zero.verifiers import tags as tags
