-- The end of the usual case: the loop that `usual_begin` opens ends here, and the call if it
-- has answered all of its takes.
--
-- Uses   answer: the text of the answers about this key, if is_usual
  replies[place + 1] = is_usual and answer
  -- include: calendar_charge
  is_left, place = is_left or not is_usual, next_place
end
if kind == USUAL and not is_left then return concat(replies) end
