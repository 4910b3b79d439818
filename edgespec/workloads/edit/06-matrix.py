"""Small dense matrices of floats, without any dependency."""

EPSILON = 1e-9


class Matrix:
    def __init__(self, rows):
        rows = [list(map(float, row)) for row in rows]
        if not rows or not rows[0]:
            raise ValueError("a matrix needs at least one element")
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise ValueError("all rows need the same length")
        self.rows = rows

    @classmethod
    def zeros(cls, height, width):
        return cls([[0.0] * width for _ in range(height)])

    @classmethod
    def identity(cls, size):
        result = cls.zeros(size, size)
        for i in range(size):
            result.rows[i][i] = 1.0
        return result

    @property
    def shape(self):
        return len(self.rows), len(self.rows[0])

    def __eq__(self, other):
        if not isinstance(other, Matrix) or self.shape != other.shape:
            return False
        height, width = self.shape
        for i in range(height):
            for j in range(width):
                if abs(self.rows[i][j] - other.rows[i][j]) > EPSILON:
                    return False
        return True

    def __repr__(self):
        body = "; ".join(" ".join(f"{x:g}" for x in row) for row in self.rows)
        return f"Matrix[{body}]"

    def __add__(self, other):
        if self.shape != other.shape:
            raise ValueError(f"cannot add {self.shape} and {other.shape}")
        pairs = zip(self.rows, other.rows)
        return Matrix([[x + y for x, y in zip(a, b)] for a, b in pairs])

    def __matmul__(self, other):
        height, inner = self.shape
        other_height, width = other.shape
        if inner != other_height:
            raise ValueError(f"cannot multiply {self.shape} by {other.shape}")
        result = Matrix.zeros(height, width)
        for i in range(height):
            for j in range(width):
                total = 0.0
                for k in range(inner):
                    total += self.rows[i][k] * other.rows[k][j]
                result.rows[i][j] = total
        return result

    def scaled(self, factor):
        return Matrix([[x * factor for x in row] for row in self.rows])

    def transposed(self):
        return Matrix(zip(*self.rows))

    def determinant(self):
        height, width = self.shape
        if height != width:
            raise ValueError("only square matrices have a determinant")
        work = [row[:] for row in self.rows]
        sign = 1.0
        for column in range(width):
            pivot = max(range(column, height), key=lambda i: abs(work[i][column]))
            if abs(work[pivot][column]) < EPSILON:
                return 0.0
            if pivot != column:
                work[pivot], work[column] = work[column], work[pivot]
                sign = -sign
            for i in range(column + 1, height):
                factor = work[i][column] / work[column][column]
                for j in range(column, width):
                    work[i][j] -= factor * work[column][j]
        product = sign
        for i in range(height):
            product *= work[i][i]
        return product

    def trace(self):
        height, width = self.shape
        return sum(self.rows[i][i] for i in range(min(height, width)))
