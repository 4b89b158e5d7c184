"""What the demo's two agents work with: real tools over a scratch project and a small ads database."""

from satchel.demo.coding import CodingTools
from satchel.demo.data import DataTools, build_ads_database
from satchel.demo.project import build_flask_project
from satchel.demo.tools import ToolFailed

__all__ = ["CodingTools", "DataTools", "ToolFailed", "build_ads_database", "build_flask_project"]
