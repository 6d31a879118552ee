"""A report as a page for a browser: one HTML file that needs nothing else, or served while a search goes on.

In: runs, and what a report found in them. Out: `report.html`, or a server on this computer.

`journals` collects what journals hold, `members` what needs networks and images; both are data, and `html` puts
them into the template in `static`, whose scripts draw everything. `server` serves the page of runs in progress. Of
these, `members` alone imports torch.
"""
