/** Bugs planted in the scripts of webhooks, each in one place: the walks of model.test.ts find every one of them. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Bug, planting } from '../lanes/planting.ts'
import { startWalkServer } from '../lanes/walks.ts'
import type { RedisServer } from '../support/redis.ts'
import { Walk } from './walk.ts'
import { walkGround, walkMany } from './walks.ts'

const bugs: [of: string, bugs: Bug[]][] = [
  [
    'fences',
    [
      ['an event is taken twice', 'if tonumber(match(piece, ', 'if true or tonumber(match(piece, '],
      ['an older revision is taken from', 'if its_revision < hook.revision or its_born', 'if its_born'],
      ['an earlier webhook of that name is taken from', 'or its_born < hook.born then', 'then'],
      ['a newer revision is not remembered', 'if its_revision > hook.revision then', 'if false then'],
      [
        'a replay is applied to the route',
        "if replay == '' then\n      redis.call('HSET'",
        "if true then\n      redis.call('HSET'",
      ],
    ],
  ],
  [
    'open batches',
    [
      ['one that is filled twice is sent again', 'batch.is_emptied or batch.stored > 0', 'batch.stored > 0'],
      ['one of another format is joined', '(is_over or batch.wrap ~= wrap)', 'is_over'],
      ['one may be too big', 'local is_over = batch.bytes + size > hook.max_bytes or', 'local is_over ='],
      ['one may have more than was lowered', 'or batch.events >= hook.max_events\n', '\n'],
      ['what is around the events does not count', ', batch.bytes = now, wrap, #wrap', ' = now, wrap'],
      ['a full one stays open', 'if batch.events >= hook.max_events then seal(batch) end', ''],
      ['one that is sealed stays due', "redis.call('ZREM', deadlines, batch.member)", ''],
      ['one that is sealed stays', "if batch.is_emptied then redis.call('DEL', key) end", ''],
      ['a due one goes behind others', 'elseif is_busy(lane_of(name), sequence) then', 'elseif false then'],
      [
        'who ends the one before it seals nothing',
        "if has_open and (became == 'delivered' or became == 'dead') then",
        'if false then',
      ],
      ['two have one id', 'sealed_here = sealed_here + 1', ''],
    ],
  ],
  [
    'endings',
    [
      ['a stale one counts', 'if is_stale then return ends_late(hook, attempt) end', ''],
      [
        'a stale one is logged each time it is said',
        " or redis.call('LPOS', attempts_prefix .. hook.name, attempt)",
        '',
      ],
      ['a failure does not count', "tally(hook, 'failures', 1)", ''],
      ['a good one does not heal', 'heals(hook)\n  end,', 'end,'],
      ['what was tried in vain is known for ever', "if tallied(hook, 'retrying') > 0 then", 'if false then'],
      [
        'nobody counts what was tried in vain',
        "tally(hook, 'retrying', redis.call('HSET'",
        "tally(hook, 'stale', 0 * redis.call('HSET'",
      ],
      ['what ended is in the backlog', "tally(hook, 'backlog', -events)\nend", 'end'],
      ['a disabled webhook goes on', "'@' .. hook.name)\n  not_before[lane] = forever", "'@' .. hook.name)"],
      ['nobody is told of a disabled webhook', "redis.call('SADD', announced, hook.name)", ''],
    ],
  ],
  [
    'what people do',
    [
      ['a paused webhook goes on', '  not_before[lane] = forever\nend\nsave_hooks()', 'end\nsave_hooks()'],
      ['a resumed one waits for its next attempt', "redis.call('ZADD', later, 'XX', now, id)", ''],
      ['what is redriven is not in the backlog', "tally(hook, 'backlog', events_in(item))", ''],
      [
        'a discarded letter stays in line',
        'dead_of[lane], dead_bytes = dead_of[lane] - 1, dead_bytes - #item',
        'dead_bytes = dead_bytes - #item',
      ],
      ['the backlog has no bound', "tallied(hook, 'backlog') > hook.keep_events and", 'false and'],
      [
        'what is dropped stays in the backlog',
        "tally(hook, 'backlog', -events)\n  tally(hook, 'dropped'",
        "tally(hook, 'dropped'",
      ],
      ['what lies behind is not dropped', 'local item = at and redis.call', 'local item = false and redis.call'],
      [
        'a stuck sequence costs the others theirs',
        'not (waiting and sealed_at(waiting) <= sealed_at(item))',
        'not waiting',
      ],
      ['a changed limit is not heard of', "'maxEvents', max_events, ", ''],
      ['a changed wait is not heard of by what is open', 'if opened then is_due_at', 'if false then is_due_at'],
      ['what is held stays when its webhook goes', 'forget_open()\nforget_held()', 'forget_open()'],
      ['what is to be tried again stays when its webhook goes', 'forget_later()\nlocal steps', 'local steps'],
      [
        'what lies behind stays when its webhook goes',
        'do steps = steps + forget_behind(tostring(sequence)) end',
        'do end',
      ],
    ],
  ],
]

let server: RedisServer
beforeAll(async () => {
  server = await startWalkServer()
})
afterAll(() => server.stop())

describe.each(bugs)('the walks find a planted bug: %s', (_, ofThese) => {
  test.each(ofThese)('%s', async (_what, line, bug) => {
    const { plant, planted } = planting(line, bug)
    const ground = walkGround(server)
    await Walk.load(ground.redis, plant)
    expect(planted.size).toBeGreaterThan(0)
    await expect(walkMany(ground, { runs: 350, plant, shrinks: false })).rejects.toThrow('Property failed')
  })
})
