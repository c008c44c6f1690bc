"""Looking inside: attention maps as pictures and pages."""

from headwise.inference.maps import Maps
from headwise.inspect.export import export
from headwise.inspect.files import save
from headwise.inspect.page import page
from headwise.inspect.pictures import alignment, beside, head_grid
from headwise.inspect.svg import Drawing

__all__ = ["Drawing", "Maps", "alignment", "beside", "export", "head_grid", "page", "save"]
