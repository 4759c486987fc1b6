"""Task resources become rows and rows become status: the only place that imports kopf."""

if __name__ == "operator":
    raise ImportError(
        "src/ is on sys.path and its operator/ shadows the standard module `operator`: take src/ off the path, import `suture`"
    )
