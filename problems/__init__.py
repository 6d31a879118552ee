"""Ready-made problems: trained networks, their data and the supernet over them. Installed as `pymoo_stitch.problems`."""
