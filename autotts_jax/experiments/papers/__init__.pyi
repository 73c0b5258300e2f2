from .autotts_page import autotts
from .mrt_page import mrt
from .page import Grid, Page, Section
from .parallel_probe_page import parallel_probe
from .published import PUBLISHED, Published
from .ttrl_page import ttrl

__all__ = [
    "PUBLISHED",
    "Grid",
    "Page",
    "Published",
    "Section",
    "autotts",
    "mrt",
    "parallel_probe",
    "ttrl",
]
