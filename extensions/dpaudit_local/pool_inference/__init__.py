"""Pool inference (Gadotti, Houssiau, Annamalai and de Montjoye, USENIX Security 2022).

What objects a person's devices submitted under local differential privacy say of the group of
objects that the person prefers: the skin tone of their emoji, the leaning of the news that they
read.

``attack`` plays the whole game; ``game`` has the people, ``settings`` the pools where they live;
``evidence`` says what one submission tells of each pool, ``posterior`` what many do together
(``memoised``: where devices repeat their reports); ``popularity`` is what a strong adversary knows;
``metrics`` how well it does, ``measures`` by grid, with what defences cost.
"""
