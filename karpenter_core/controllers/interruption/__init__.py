"""Machines that their cloud takes away: announcements in, replacements and drains out."""
