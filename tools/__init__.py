"""What a maintainer runs from a checkout, and no user needs: it is not part of the package."""
