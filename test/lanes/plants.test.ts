/**
 * Bugs planted in the scripts, each in one place: the walks of model.test.ts find every one of them. They begin with a definition that has what
 * the bug is about: it is found soon, and not by chance.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { QueueLimits } from '../../src/lanes/limits.ts'
import type { RedisServer } from '../support/redis.ts'
import { type Bug, planting } from './planting.ts'
import type { Definition } from './steps.ts'
import { Walk } from './walk.ts'
import { startWalkServer, walkGround, walkMany } from './walks.ts'

const limited = (limits: QueueLimits): Partial<Definition> => ({ limits })
const skips: Partial<Definition> = { way: { ordered: true, parks: false } }
const parks: Partial<Definition> = { way: { ordered: true, parks: true } }

const ofOperations: Bug[] = [
  ['an end is counted twice', 'finished[way] + times', 'finished[way] + 2 * times'],
  ['one that has ended ends again', 'if before >= succeeded then return false end', ''],
  [
    'what was cancelled is given',
    'local is_cancelled = track and track.wants_cancelled(id)',
    'local is_cancelled = false',
  ],
  ['what is tried again seems to run', 'if track then track.retries(id, reason) end\n      redis', 'redis'],
  ['what lapsed seems to run', 'if track then track.retries(id, lapsed_reason) end', ''],
  ['what was handed back seems to run', 'if track then track.returns(id) end', ''],
  ['what was handed back has no past', 'if is_mixed or has_returned then return false end', ''],
  ['what was tried before has no past', "sub(item, at, at + 3) ~= '0 0 '", 'false'],
  [
    'a dead letter seems to run',
    "if track then track.fails(id, reason) end\n  redis.call('HSET', dead",
    "redis.call('HSET', dead",
  ],
]

const bugs: [of: string, its: Partial<Definition>, bugs: Bug[]][] = [
  [
    'turns',
    {},
    [
      ['a lane is put in line when its list was empty', 'gave[lane] = gives(lane)', 'gave[lane] = waits_in(lane) > 0'],
      ['a drained lane keeps its place', 'if did_give then out[#out + 1] = name_of[lane] end', ''],
      ['a lane that was served keeps its number', 'last_turn = last_turn + 1\n        turn_of[lane] = last_turn', ''],
      ['the rest of a turn is forgotten', 'credit_of[lane] = turn - given', 'credit_of[lane] = 0'],
      ['a lapsed lease is no attempt', 'attempts = tonumber(attempts) + 1', 'attempts = tonumber(attempts)'],
      ['what is handed back goes to the end', '(at_head and -number or number)', 'number'],
      ['an accept is applied twice', 'if applied < first or tonumber(', 'if true or tonumber('],
      ['a stale settle counts', "count('out', #names)", "count('out', size)"],
      ['a whole lease is done that holds less', 'lease.size ~= size or lease.left ~= size', 'false'],
      ['a whole lease is still held', 'lease.ids, lease.places, lease.left = {}, {}, 0', ''],
      ['what is no dead letter any more counts as one', "count('deadBytes', -#item)", ''],
      ['what was acknowledged stays at its place', 'remove_items(done)', ''],
      ['a throttle ends a pause', '== forever then return end', '== forever then not_before[lane] = 0 end'],
    ],
  ],
  [
    'order',
    skips,
    [
      ['an owned key is given twice', 'if not first_behind[field] then\n', 'if true then\n'],
      [
        'one that is tried again comes behind others of its key',
        "is_ordered and match(item, '^%S+ %d+ %S+ (%d+) ') == '0' then",
        'is_ordered then',
      ],
      [
        'an item that has expired lets nobody line up',
        "count('expired', 1)\n          if is_ordered then goes(lane, key_of(item, name_of[lane])) end",
        "count('expired', 1)",
      ],
      [
        'a dead letter lets nobody line up',
        'if give_up(lane, id, after, reason) and is_ordered then goes(lane, lease.keys[i]) end',
        'give_up(lane, id, after, reason)',
      ],
      ['what is taken for good lets nobody line up', 'if is_ordered then goes(lane, keys_given[i]) end', ''],
      ['a whole lease lets nobody line up', 'if is_ordered then goes(lane, keys[i]) end', ''],
      ['an object is left without an owner', 'first_behind[field] = false\n    end', 'end'],
    ],
  ],
  ['operations', { track: true }, ofOperations],
  ['parked objects', parks, [['a parked object goes on', 'or 0) + 1\n  return false', 'or 0) + 1\n  return true']]],
  [
    'in flight',
    limited({ inFlight: 3, inFlightPerTenant: 2 }),
    [
      ['the limit per tenant is ignored', 'return cap > 0 and cap or math.huge', 'return math.huge'],
      ['a lowered limit per tenant counts later', 'cap_of_lane = cap_in(its_limits)', ''],
      ['the limit in all is ignored', "math.min(n, cap_of_store - in_all('held'))", 'n'],
    ],
  ],
  [
    'a share',
    limited({ maxShare: 0.35 }),
    [
      ['the share is ignored', 'if share == 0 then', 'if true then'],
      ['above its share, anybody is next', 'table.sort(active)', 'active = {active[1]}'],
      [
        'whoever is passed over loses its place',
        'then passed[#passed + 1] = lane end',
        'then turn_of[lane] = next_turn() end',
      ],
    ],
  ],
  [
    'a rate',
    limited({ rate: { max: 2, perMs: 800 } }),
    [
      [
        'an empty look costs a piece of the rate',
        'if given > 0 then\n    paced',
        'if true then\n    given = math.max(1, given)\n    paced',
      ],
      ['the rate is never used up', 'return math.min(most, left), left < most', 'return most, false'],
      ['nobody hears when there is more of the rate', 'if is_paced then first = math.min(first, more_at) end', ''],
      ['a changed rate waits for the old one', 'store_every > 0 and paced_until > now + store_at_once', 'false'],
    ],
  ],
  [
    'a rate per tenant',
    limited({ ratePerTenant: { max: 2, perMs: 800 } }),
    [
      [
        'the rate per tenant is never used up',
        'math.max(paced_of[lane] or 0, now) + given * lane_every',
        'math.max(paced_of[lane] or 0, now)',
      ],
      ['an empty lane forgets its rate', 'if is_empty and paced == 0 then', 'if is_empty then'],
      [
        'whoever waits for a changed rate waits for the old one',
        'if is_repaced and not_before',
        'if false and not_before',
      ],
      ['a lane in line without a rate is in the way', 'before == 0 and is_spent(lane)', 'false'],
    ],
  ],
  [
    'a backlog',
    { ...skips, limits: { backlog: 2 } },
    [
      ['the backlog does not count what waits for a time', '+ later_of[lane] >= most_backlog', '>= most_backlog'],
      [
        'the backlog does not count what lies behind',
        'ranked_of[lane] + (behind_of[lane] or 0) + later_of',
        'ranked_of[lane] + later_of',
      ],
      [
        'a full backlog loses events',
        'up_to = true, before and tonumber(before) > applied and before or asked_for[field]',
        'up_to = true, up_to',
      ],
      ['a send passes a full backlog', 'limits and is_full(lane) and format', 'false and format'],
    ],
  ],
  [
    'a backlog that drops',
    { ...skips, limits: { backlog: 2, overflow: 'drop-oldest' } },
    [
      ['what gives way is not counted', "count('dropped', 1)\n  if is_ordered", 'if is_ordered'],
      [
        'what gives way lets nobody line up',
        'if is_ordered then pass_on({lane}, {key_of(item, name_of[lane])}) end',
        '',
      ],
    ],
  ],
]

let server: RedisServer
beforeAll(async () => {
  server = await startWalkServer()
})
afterAll(() => server.stop())

describe.each(bugs)('the walks find a planted bug: %s', (_, its, ofThese) => {
  test.each(ofThese)('%s', async (_what, line, bug) => {
    const { plant, planted } = planting(line, bug)
    const ground = walkGround(server)
    await Walk.load(ground.redis, plant)
    expect(planted.size).toBeGreaterThan(0)
    await expect(walkMany(ground, { runs: 700, its, plant, shrinks: false })).rejects.toThrow('Property failed')
  })
})
