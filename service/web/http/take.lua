-- KEYS[1]: the bucket; ARGV: its size in tokens, tokens per second. Returns milliseconds until there is a token, 0:
-- taken.
local now = redis.call('TIME')
local at = now[1] + now[2] / 1000000
local size, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(bucket[1]) or size
tokens = math.min(size, tokens + rate * math.max(0, at - (tonumber(bucket[2]) or at)))
local wait = 0
if tokens >= 1 then tokens = tokens - 1 else wait = math.ceil((1 - tokens) / rate * 1000) end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.6f', at))
redis.call('PEXPIRE', KEYS[1], math.ceil(size / rate * 1000) + 1000)
return wait
