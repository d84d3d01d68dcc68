"""Shared parts of pages, which are readable without scripts and load nothing from other sites."""
