"""The conversations in the docs are what is answered."""

from __future__ import annotations

import pytest

from tests.bots.conversation import PAGES, a_chat, conversation, with_conversation


@pytest.mark.full
@pytest.mark.parametrize("platform", PAGES)
def test_a_page_shows_what_is_answered(platform: str) -> None:
    page = PAGES[platform].read_text()
    with a_chat() as chat:
        assert with_conversation(page, conversation(platform, chat)) == page
        assert chat.platforms.breaches == []
