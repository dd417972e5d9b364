"""Every reader of files and datagrams, by name."""

from .datagrams import DATAGRAMS
from .demonstrations import DEMONSTRATIONS
from .policies import POLICIES
from .runs import RUNS

READERS = {**RUNS, **POLICIES, **DEMONSTRATIONS, **DATAGRAMS}
