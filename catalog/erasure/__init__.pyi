from catalog.erasure.eraser import Eraser as Eraser
from catalog.erasure.eraser import ErasureResult as ErasureResult
