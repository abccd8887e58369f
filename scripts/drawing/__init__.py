"""Pictures from text: boxes with arrows, and sequences. Each kind has a module, which says what may stand in its source; `scripts/draw_pictures.py` draws all of docs/pictures/.

What must stay true: one source gives one picture, byte for byte, whatever machine draws it and whatever fonts that has; what is drawn can be read in light and in dark, and nothing is fetched from anywhere.
"""
