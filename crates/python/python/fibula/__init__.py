"""Lookups of millions of flat names, with numpy arrays.

======================  ==============================================================================
`Fib`                   names to actions in 10 to 20 bits a name, of any design; `.fib` files
`Filter`                sets of names that answer "no" for sure and "yes" almost: Bloom filters
`FlowTable`             exact keys with values and lifetimes: flows that come and go
`PrefixTable`           IP prefixes to next hops: the longest that an address begins with
`RuleTable`             rules over five-tuples: the first that matches a flow
`fibula.controller`     an asyncio client of the controller (`pip install fibula[controller]`)
`fibula.rate`           what numpy batches reach of the rate of Rust: `python -m fibula.rate`
======================  ==============================================================================

Batches run without the interpreter's lock: threads look up side by side. Files are those of the command `fibula`.
"""

from ._native import __version__, designs as _designs, layouts as _layouts
from .fib import Fib
from .filter import Filter
from .flow import FlowTable, Inserted
from .lpm import PrefixTable
from .rules import Rule, RuleTable

#: FIB designs, with a line about each.
DESIGNS = dict(_designs())
#: Layouts of the bits of a filter.
LAYOUTS = tuple(_layouts())

__all__ = ["DESIGNS", "LAYOUTS", "Fib", "Filter", "FlowTable", "Inserted", "PrefixTable", "Rule", "RuleTable", "__version__"]
