"""The console: the page for people, rendered here and sent whole. One stylesheet, one small script, nothing from elsewhere."""

from suture.api.console.routes import is_page, refuse, router

__all__ = ["is_page", "refuse", "router"]
