"""What the server does in one step: the Lua of the Redis store.

Owns: every script, and the layout of the hash behind a run.
Must never: touch keys of two hash tags in one script, compare a seq as a number (Lua's are exact up to 2^53 only), or
write anything after a write that could still be refused: a script that fails is not undone.
Invariant: the log is written before the head moves, so an entry above the head is one that was never acknowledged.

A server refuses for want of memory, disk or replicas only at a script's first write. In each script that is the write
which needs the room.

The hash of a run or inbox: head, begins, epoch, token, before (the token of the claim before), owner, ttl, lease_until,
stamp, agent, status, wake_at, about, created_at, updated_at, stored_bytes, deleted.
"""

from __future__ import annotations

from hashlib import sha1


class Script(str):
    """The text of a script, known to a server by its digest."""

    __slots__ = ("sha",)

    sha: str

    def __new__(cls, text: str) -> Script:
        """`text` with its digest."""
        made = super().__new__(cls, text)
        made.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        return made


_NOW = """
local function clock(given)
    if given ~= '' then return tonumber(given) end
    local time = redis.call('TIME')
    return tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local function text(number) return string.format('%.17g', number) end
"""

# An entry above the head was never acknowledged, and makes room for the one that is. A stream never takes a smaller id
# than it once had, so what is good of it goes into a new one.
_ADD = """
local function add(log, head, last, after, data)
    local above = head .. '-18446744073709551615'
    if #redis.call('XRANGE', log, '(' .. above, '+', 'COUNT', 1) > 0 then
        local good = redis.call('XRANGE', log, '-', above)
        redis.call('DEL', log)
        for _, entry in ipairs(good) do redis.call('XADD', log, entry[1], 'd', entry[2][2]) end
    end
    redis.call('XADD', log, last .. '-' .. after, 'd', data)
end
"""

TOUCH = Script("""
for at = 2, #ARGV do
    if ARGV[1] == 'XX' or not redis.call('ZSCORE', KEYS[1], ARGV[at]) then
        redis.call('ZADD', KEYS[1], ARGV[1], redis.call('INCR', KEYS[2]), ARGV[at])
    end
end
return redis.status_reply('OK')
""")
"""KEYS order, count. ARGV NX (index those that are not) or XX (put those that are in front), ids."""

APPEND = Script(
    _NOW
    + _ADD
    + """
local run, log = KEYS[1], KEYS[2]
local after, last, data, epoch, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local is = redis.call('HMGET', run, 'head', 'epoch', 'deleted', 'token', 'ttl', 'before')
local made = not is[1]
if made then
    if ARGV[7] ~= '1' then return {'unknown'} end
    is = {'0', '0', '', '', '0', ''}
end
if is[3] == '1' or is[1] ~= after or is[2] ~= epoch or (token ~= '' and token ~= is[4]) then
    return {'refused', is[1], is[2], is[3] or '', is[4] or '', is[6] or ''}
end
local now = clock(ARGV[6])
add(log, is[1], last, after, data)
redis.call('HINCRBY', run, 'stored_bytes', #data)
if made then redis.call('HSET', run, 'epoch', '0', 'created_at', text(now)) end
if ARGV[9] then
    redis.call('HSET', run, 'agent', ARGV[9], 'status', ARGV[10], 'wake_at', ARGV[11], 'about', ARGV[12])
end
redis.call('HSET', run, 'updated_at', text(now), 'lease_until', text(now + tonumber(is[5] or '0')),
    'stamp', ARGV[8], 'head', last)
return redis.status_reply('OK')
"""
)
"""KEYS run, log. ARGV after, last, data, epoch, token, clock, 1 to create an inbox, stamp, and the
label if there is one."""

CLAIM = Script(
    _NOW
    + """
local run = KEYS[1]
local owner, ttl, mine, gone, trusted, stamp = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local is = redis.call('HMGET', run, 'head', 'epoch', 'deleted', 'token', 'owner', 'lease_until', 'before', 'stamp')
local now = clock(ARGV[1])
local function answer(word, epoch, token)
    return {word, is[1] or '', epoch or is[2] or '', token or is[4] or '', is[5] or '', is[6] or '0', is[7] or '',
        is[8] or '', text(now)}
end
if is[3] == '1' then return answer('deleted') end
if not is[1] and (ttl == '0' or mine ~= '') then return answer('unknown') end
if mine ~= '' and is[4] ~= mine then return answer('other') end
if ttl == '0' then
    if is[5] == owner then redis.call('HSET', run, 'owner', '', 'ttl', '0', 'lease_until', '0') end
    return answer('released')
end
local epoch, token, before = is[2] or '0', is[4] or '', is[7] or ''
if is[5] ~= owner then
    if is[5] and is[5] ~= '' and tonumber(is[6]) > now and is[5] ~= gone then return answer('held') end
end
if is[8] and is[8] ~= stamp and is[8] ~= trusted and mine == '' then return answer('moved') end
if is[5] ~= owner then
    before = token
    epoch = text(tonumber(epoch) + 1)
    token = redis.sha1hex(owner .. '|' .. epoch .. '|' .. stamp .. '|' .. text(now))
end
local made = {}
if not is[1] then
    made = {'head', '0', 'begins', '0', 'created_at', text(now), 'updated_at', text(now), 'stored_bytes', '0'}
end
redis.call('HSET', run, 'epoch', epoch, 'token', token, 'before', before, 'owner', owner, 'ttl', ttl,
    'lease_until', text(now + tonumber(ttl)), 'stamp', stamp, unpack(made))
is[7] = before
return answer('ours', epoch, token)
"""
)
"""KEYS run. ARGV clock, owner, ttl, the token we hold or '', a holder known to be gone, a stamp judged safe,
our stamp."""

RESTORE = Script(
    _NOW
    + _ADD
    + """
local run, log = KEYS[1], KEYS[2]
local head, token = ARGV[2], ARGV[3]
local is = redis.call('HMGET', run, 'head', 'token', 'deleted', 'created_at')
if (is[1] or '') ~= head or (is[2] or '') ~= token or is[3] == '1' then return {'changed'} end
local now = clock(ARGV[1])
local at = is[1] or '0'
for n = 14, #ARGV, 3 do
    add(log, at, ARGV[n + 1], ARGV[n], ARGV[n + 2])
    at = ARGV[n + 1]
    redis.call('HINCRBY', run, 'stored_bytes', #ARGV[n + 2])
end
if not is[1] then redis.call('HSET', run, 'begins', '0', 'created_at', text(now)) end
if ARGV[9] == '1' then
    redis.call('HSET', run, 'agent', ARGV[10], 'status', ARGV[11], 'wake_at', ARGV[12], 'about', ARGV[13])
end
redis.call('HSET', run, 'epoch', ARGV[4], 'before', token, 'token', ARGV[5], 'owner', ARGV[6], 'ttl', ARGV[7],
    'lease_until', text(now + tonumber(ARGV[7])), 'updated_at', text(now), 'stamp', ARGV[8], 'head', at)
return redis.status_reply('OK')
"""
)
"""KEYS run, log. ARGV clock, head and token that are there, epoch, token, owner and ttl to be there, stamp, 1 if there
is a label, the label, and then after, last and data of each batch that was lost."""

SNAPSHOT = Script("""
local run, log, snap = KEYS[1], KEYS[2], KEYS[3]
local seq, begins = ARGV[1], ARGV[3]
local function longer(a, b)
    if #a ~= #b then return #a > #b end
    return a > b
end
local is = redis.call('HMGET', run, 'head', 'deleted', 'begins')
if not is[1] then return {'unknown'} end
if is[2] == '1' then return {'deleted'} end
local beginning = is[3] or '0'
local drops = begins == '1' and seq ~= beginning
if drops and #redis.call('XRANGE', log, seq .. '-0', seq .. '-18446744073709551615', 'COUNT', 1) == 0 then
    return {'between'}
end
redis.call('HSET', snap, seq, ARGV[2])
if drops then
    beginning = seq
    local size = 0
    for _, entry in ipairs(redis.call('XRANGE', log, '-', seq .. '-18446744073709551615')) do
        size = size + #entry[2][2]
    end
    redis.call('HSET', run, 'begins', seq)
    redis.call('HINCRBY', run, 'stored_bytes', -size)
    redis.call('XTRIM', log, 'MINID', '=', ARGV[4] .. '-0')
end
local kept = redis.call('HKEYS', snap)
table.sort(kept, longer)
for at, one in ipairs(kept) do
    if one ~= beginning and (at > 2 or longer(beginning, one)) then redis.call('HDEL', snap, one) end
end
return redis.status_reply('OK')
""")
"""KEYS run, log, snap. ARGV seq, data, 1 if the journal begins there, seq + 1."""

DELETE = Script(
    _NOW
    + """
local is = redis.call('HMGET', KEYS[1], 'head', 'deleted')
local inbox = redis.call('HGET', KEYS[4], 'head')
if is[2] == '1' then return {'deleted'} end
if not is[1] and not inbox then return {'unknown'} end
local now = text(clock(ARGV[1]))
redis.call('UNLINK', unpack(KEYS))
for _, key in ipairs({KEYS[1], KEYS[4]}) do
    redis.call('HSET', key, 'deleted', '1', 'head', '0', 'epoch', '0', 'created_at', now, 'updated_at', now)
end
return redis.status_reply('OK')
"""
)
"""KEYS run, log, snap, inbox, inbox's log. ARGV clock."""

ALL = (TOUCH, APPEND, CLAIM, RESTORE, SNAPSHOT, DELETE)
