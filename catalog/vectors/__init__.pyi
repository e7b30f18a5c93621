from catalog.vectors.manager import Vectors as Vectors
