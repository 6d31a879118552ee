"""What a person takes from runs.

In: journals, and the problem that was searched. Out: runs as arrays (`Run`), algorithms compared (`Comparison`), and a
`Report` with tables, plots, drawings and files, from which one network is chosen.

May import: `util`, `network`, `stitches`, `supernet`, `task`, `evaluations`, `algorithms`, `problem`.

Of its modules, `runs`, `comparison` and most of `page` do not import torch. A new plot is listed below and, to be among
a report's files, in `Report.write`.
"""

from typing import TYPE_CHECKING

from ..util.lazy import lazy

if TYPE_CHECKING:
    from .cascade_points import read_cascade as read_cascade
    from .cascade_points import with_new_thresholds as with_new_thresholds
    from .comparison import Comparison as Comparison
    from .comparison import Difference as Difference
    from .comparison import compare as compare
    from .comparison import file_name as file_name
    from .drawing import draw_cascade as draw_cascade
    from .drawing import draw_subnetwork as draw_subnetwork
    from .fronts import plot_fronts as plot_fronts
    from .plots import plot_hypervolume as plot_hypervolume
    from .plots import plot_predictions as plot_predictions
    from .plots import plot_reliability as plot_reliability
    from .plots import plot_stitches as plot_stitches
    from .points import Measured as Measured
    from .points import Point as Point
    from .points import noise as noise
    from .report import NothingToRecommendError as NothingToRecommendError
    from .report import Report as Report
    from .report import in_words as in_words
    from .report import stages_of as stages_of
    from .runs import Run as Run
    from .segments import describe_subnetwork as describe_subnetwork

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cascade_points": ["read_cascade", "with_new_thresholds"],
        "comparison": ["Comparison", "Difference", "compare", "file_name"],
        "drawing": ["draw_cascade", "draw_subnetwork"],
        "fronts": ["plot_fronts"],
        "plots": ["plot_hypervolume", "plot_predictions", "plot_reliability", "plot_stitches"],
        "points": ["Measured", "Point", "noise"],
        "report": ["NothingToRecommendError", "Report", "in_words", "stages_of"],
        "runs": ["Run"],
        "segments": ["describe_subnetwork"],
    },
)
