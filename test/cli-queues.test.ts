/** Queues on the command line: looked at, sent to, worked on by commands, drained. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type Bus, rawJson } from '../src/bus.ts'
import { appFolder } from './support/app.ts'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { callCli, jsonLines, runCli, startCli } from './support/cli.ts'
import { eventually } from './support/eventually.ts'

const quick = { retry: { attempts: 2, backoff: ['10ms', '10ms'] } } as const

async function place(definition: Parameters<Bus['queues']['put']>[1] = quick) {
  const namespace = freshNamespace()
  const bus = testBus({ namespace })
  await bus.queues.put('mail', definition)
  const flags = ['--redis', redisUrl(), '--namespace', namespace]
  const cli = (...args: string[]) => {
    // What comes after `--` is the command's.
    const end = args.includes('--') ? args.indexOf('--') : args.length
    return callCli([...args.slice(0, end), ...flags, ...args.slice(end)])
  }
  const json = async (...args: string[]) => jsonLines((await cli(...args, '--json')).stdout)
  const facts = () => bus.queues.get('mail')
  const open = await bus.queues.open('mail')
  /** `busbar work mail … -- node -e script` in a process; the script has `item`, and `note(text)`. */
  const folder = appFolder({ 'notes.txt': '' })
  const notes = join(folder, 'notes.txt')
  const script = (body: string) => {
    const file = join(folder, `command-${Math.random().toString(36).slice(2)}.mjs`)
    const head = `import { appendFileSync, readFileSync } from 'node:fs'
const text = readFileSync(0, 'utf8')
const item = JSON.parse(text)
const note = (line) => appendFileSync(${JSON.stringify(notes)}, line + '\\n')
`
    writeFileSync(file, head + body)
    return ['--', process.execPath, file]
  }
  const noted = () => readFileSync(notes, 'utf8').split('\n').slice(0, -1)
  return { bus, namespace, flags, cli, json, facts, open, script, noted, folder }
}

describe('looking', () => {
  test('queues and one of them: facts, tenants with backlog, age and in flight, and what comes next', async () => {
    const { cli, json, open, facts, bus } = await place({ match: 'order.*', weights: { acme: 3 }, ...quick })
    for (const data of [1, 2, 3]) await open.send(data, { tenant: 'acme' })
    await open.send({ to: 'b' }, { tenant: 'zebra', key: 'k\u001b[31m' })
    await open.send(5, { delay: '1h' })
    await open.claim({ max: 1 })
    const table = (await cli('queues')).stdout
    expect(table).toMatch(
      /^name +match +waiting +later +held +dead +oldest +paused\nmail +order\.\* +3 +1 +1 +0 +\S+s +-\n$/,
    )
    expect(await json('queues')).toEqual([{ ...(await facts()), oldestMs: expect.any(Number) }])
    const shown = (await cli('queue', 'mail', '--peek', '2')).stdout
    expect(shown).toMatch(/^name +mail\nmatch +order\.\*\nwaiting +3\nlater +1\nheld +1\n/)
    expect(shown).toMatch(/\nlease +10s\nretry +2 attempts, waiting 10ms to 10ms\nweights +acme=3\n\n/)
    expect(shown).toMatch(
      /\ntenant +weight +waiting +oldest +in flight +later +dead +state\nacme +3 +2 +\S+s +1 +0 +0 +-\nzebra +1 +1 +\S+s +0 +0 +0 +-\n/,
    )
    const peeked = shown.split('\n').slice(-4, -1)
    expect(peeked.join('\n')).toMatch(
      /^time +id +tenant +type +key +data\n\S+Z +mail\.\S+ +acme +mail +- +2\n\S+Z +mail\.\S+ +acme +mail +- +3$/,
    )
    expect(new Set(peeked.map((line) => /\S+$/.exec(line)!.index)).size).toBe(1)
    expect(shown).not.toContain('\u001b')
    const [whole] = await json('queue', 'mail', '--peek', '3', '--limit', '1')
    expect(whole).toMatchObject({ name: 'mail', waiting: 3, byTenant: [{ tenant: 'acme', waiting: 2, held: 1 }] })
    expect((whole!.next as { data: unknown }[]).map(({ data }) => data)).toEqual([2, 3, { to: 'b' }])
    expect((await cli('queue', 'mail', '--limit', '1')).stderr).toContain('2 more tenants: --limit shows more.')
    expect((await bus.queues.get('mail')).waiting).toBe(3)
  })

  test('what waits of paused and throttled tenants counts for the oldest, and says until when', async () => {
    const { bus, cli, open, facts } = await place({ weights: { off: 0 } })
    await open.send(1, { tenant: 'off' })
    expect((await facts()).oldestMs).toBeGreaterThanOrEqual(0)
    const queue = (await cli('queue', 'mail')).stdout
    expect(queue).toMatch(/\noldest +\d\S*s\n/)
    expect(queue).toMatch(/\noff +0 +1 +\S+s +0 +0 +0 +weight 0\n/)
    await bus.queues.put('slow')
    await (await bus.queues.open('slow')).send(1, { tenant: 'acme' })
    bus.work([{ name: 'slow' }], (_, context) => context.throttle('1h'))
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.tenants('slow'))[0]?.throttledUntil != null)
    const [acme] = await bus.queues.tenants('slow')
    expect(acme!.throttledUntil! - Date.now()).toBeGreaterThan(3_500_000)
    const slow = (await cli('queue', 'slow')).stdout
    expect(slow).toMatch(/\noldest +\d\S*s\n/)
    expect(slow).toMatch(/\nacme +1 +1 +\S+s +0 +0 +0 +until \S+Z\n/)
  })

  test.each(['paused', 'throttled'])(
    'of more than 1,000 tenants the oldest item may be of one that is %s',
    async (how) => {
      const { bus, open, facts } = await place({ weights: { paused: 0 } })
      await open.send(1, { tenant: how })
      const worker = bus.work([{ name: 'mail' }], (_, context) => context.throttle('1h'))
      await bus.run({ signals: false })
      const isThrottled = async () => (await bus.queues.tenants('mail'))[0]?.throttledUntil != null
      if (how === 'throttled') await eventually(isThrottled)
      await worker.close()
      await new Promise((resolve) => setTimeout(resolve, 100))
      await Promise.all(Array.from({ length: 1_001 }, (_, n) => open.send(n, { tenant: `t${n}` })))
      const tenants = await bus.queues.tenants('mail', { limit: 2_000 })
      const oldest = tenants.find(({ tenant }) => tenant === how)!.oldestMs!
      expect(oldest).toBeGreaterThanOrEqual(100)
      expect(await facts()).toMatchObject({ waiting: 1_002, tenants: 1_002 })
      expect((await facts()).oldestMs).toBeGreaterThanOrEqual(oldest)
    },
  )

  test('a tenant that is resumed says what else is in its way: its weight, or all of the queue', async () => {
    const { bus, cli } = await place({ weights: { off: 0 } })
    expect((await cli('queue', 'resume', 'mail', '--tenant', 'acme')).stderr).toBe('')
    expect((await cli('queue', 'resume', 'mail', '--tenant', 'off')).stderr).toContain('its weight is 0')
    await bus.queues.pause('mail')
    const { stdout, stderr } = await cli('queue', 'resume', 'mail', '--tenant', 'acme')
    expect(stdout).toBe('Tenant acme of mail goes on.\n')
    expect(stderr).toMatch(
      /^Nothing of it is given yet: all of mail is paused\. `.* queue resume mail .*` lets it go on\.\n$/,
    )
  })

  test('pause, resume, rm', async () => {
    const { cli, json, open, facts } = await place()
    await open.send(1)
    expect((await cli('queue', 'pause', 'mail', '--tenant', 'acme')).stdout).toBe('Tenant acme of mail is paused.\n')
    expect((await cli('queue', 'resume', 'mail', '--tenant', 'acme')).stdout).toBe('Tenant acme of mail goes on.\n')
    expect((await cli('queue', 'pause', 'mail')).stdout).toBe('mail is paused.\n')
    expect([(await facts()).paused, (await cli('queues')).stdout]).toEqual([true, expect.stringMatching(/ paused\n$/)])
    expect(await json('queue', 'resume', 'mail')).toEqual([{ name: 'mail', paused: false }])
    expect((await facts()).paused).toBe(false)
    const refused = await cli('queue', 'rm', 'mail')
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('1 waiting, 0 later, 0 held, 0 dead')])
    expect((await facts()).waiting).toBe(1)
    expect((await cli('queue', 'rm', 'mail', '--yes')).stdout).toBe('mail is removed.\n')
    expect((await cli('queues')).stderr).toMatch(
      /^There is no queue in namespace .* yet; --namespace names another one\.\n`.* queue put mail --match 'mail\.\*' .*` makes one\.\n$/,
    )
    expect((await cli('match', 'acme', 'a.b')).stderr).toMatch(
      /There is no subscription .* queue put mail .* makes one/,
    )
    expect((await cli('queue', 'mail')).stderr).toContain('`busbar queue put` makes a queue.')
  })

  test('[Q29] a tenant that is paused, or at a limit, says so; what is held counts against the limit', async () => {
    const limits = { inFlight: 4, inFlightPerTenant: 1, ratePerTenant: { max: 1, per: '1h' }, backlog: 2 } as const
    const { cli, open } = await place({ weights: { off: 0 }, limits })
    for (const tenant of ['acme', 'globex', 'full', 'off']) await open.send(1, { tenant })
    await cli('queue', 'pause', 'mail', '--tenant', 'globex')
    expect((await open.claim({ max: 9 })).items).toHaveLength(2)
    for (const n of [1, 2]) await open.send(n, { tenant: 'full' })
    const shown = (await cli('queue', 'mail')).stdout
    expect(shown).toMatch(/\nheld +2 of 4\n/)
    expect(shown).toMatch(
      /\nlimits +in-flight 4, in-flight-per-tenant 1, rate-per-tenant 1\/h, backlog 2, overflow hold\n/,
    )
    expect(shown).toMatch(/\nfull +.* +until \S+Z, in flight full, backlog full\n/)
    expect(shown).toMatch(/\nacme +.* +until \S+Z, in flight full\n/)
    expect(shown).toMatch(/\nglobex +.* +paused\n/)
    expect(shown).toMatch(/\noff +.* +weight 0\n/)
    const refused = await cli('send', 'mail', '3', '--tenant', 'full')
    expect([refused.code, refused.stderr]).toEqual([
      3,
      expect.stringContaining('error BACKLOG_FULL: Tenant "full" has 2'),
    ])
  })

  test('that nothing runs, so that nothing enters a queue, is said until something does', async () => {
    const { bus, namespace, cli, facts } = await place({ match: 'order.*' })
    await bus.queues.put('sent')
    await bus.publish('order.paid', 1)
    const looks = [['queues'], ['queue', 'mail'], ['match', 'acme', 'order.paid']]
    const said = new RegExp(
      `Nothing runs in namespace ${namespace}: what is published reaches no queue and no webhook until a process does\\. ` +
        `\`.* up --redis \\S+ --namespace ${namespace}\` starts one\\.\n$`,
    )
    for (const look of looks) expect((await cli(...look)).stderr).toMatch(said)
    for (const look of looks) expect((await cli(...look, '--json')).stderr).toBe('')
    // What is sent enters it whoever runs.
    expect((await cli('queue', 'sent')).stderr).not.toContain('Nothing runs')
    await bus.run({ signals: false })
    await eventually(async () => (await facts()).waiting === 1)
    for (const look of looks) expect((await cli(...look)).stderr).toBe('')
  })

  test('[Q14] [Q22] [Q30] [Q42] put says order and limits; whether it is ordered stays', async () => {
    const { bus, cli } = await place()
    const limits = '--in-flight 100 --in-flight-per-tenant 10 --max-share 0.5 --rate 50/s --rate-per-tenant 5/10m'
    const words = `queue put orders --ordered --on-poison park ${limits} --backlog 1000 --overflow drop-oldest`.split(
      ' ',
    )
    const made = await cli(...words)
    expect([made.code, made.stdout]).toEqual([
      0,
      `orders is created.
match      -
lease      10s
retry      5 attempts, waiting 1s to 5m
weights    -
ordered    yes
on poison  park
limits     in-flight 100, in-flight-per-tenant 10, max-share 0.5, rate 50/s, rate-per-tenant 5/10m, backlog 1000, overflow drop-oldest
`,
    ])
    expect(await bus.queues.get('orders')).toMatchObject({
      ...{ ordered: true, onPoison: 'park' },
      limits: {
        ...{ inFlight: 100, inFlightPerTenant: 10, maxShare: 0.5, backlog: 1_000, overflow: 'drop-oldest' },
        ...{ rate: { max: 50, perMs: 1_000 }, ratePerTenant: { max: 5, perMs: 600_000 } },
      },
    })
    expect((await cli(...words)).stdout).toMatch(/^orders is as it was\.\n/)
    const other = await cli('queue', 'put', 'orders', '--in-flight', '5')
    expect([other.code, other.stderr]).toEqual([
      2,
      expect.stringContaining('queue "orders" is ordered, and stays so: say --ordered, take another name'),
    ])
  })

  test('put makes a queue, changes it, and refuses what cannot be', async () => {
    const { bus, cli, json } = await place()
    const words = ['queue', 'put', 'billing', '--match', 'order.*', '--match', 'acme:mail.>', '--weight', 'acme=3']
    const whole = [...words, '--weight', 'zebra=0', '--attempts', '8', '--backoff', '2s,1m', '--lease', '30s']
    const made = await cli(...whole)
    expect([made.code, made.stdout]).toEqual([
      0,
      `billing is created.
match      order.*, acme:mail.>
lease      30s
retry      8 attempts, waiting 2s to 1m
weights    acme=3, zebra=0
`,
    ])
    expect(made.stderr).toContain('Nothing runs in namespace')
    expect(await bus.queues.get('billing')).toMatchObject({
      ...{ match: ['order.*', 'acme:mail.>'], weights: { acme: 3, zebra: 0 } },
      ...{ attempts: 8, backoffMs: [2_000, 60_000], leaseMs: 30_000 },
    })
    const once = await cli('queue', 'put', 'billing', '--attempts', '1')
    expect(once.stdout).toMatch(/^billing is changed\.\nmatch +-\nlease +10s\nretry +1 attempt, no retries\n/)
    expect([once.stderr, (await cli('queue', 'put', 'billing', '--attempts', '1')).stdout]).toEqual([
      expect.stringMatching(
        /^No longer: match order\.\*, match acme:mail\.>, weight acme=3, weight zebra=0, backoff 2s,1m, lease 30s\. /,
      ),
      expect.stringMatching(/^billing is as it was\.\n/),
    ])
    const refused = await cli(...whole)
    expect([refused.code, refused.stderr]).toEqual([3, expect.stringContaining('`busbar queue put --force`')])
    expect(await json(...whole, '--force')).toMatchObject([{ change: 'changed', name: 'billing', attempts: 8 }])
    await bus.publish('order.paid', 1)
    const early = ['queue', 'put', 'early', '--match', 'order.*', '--from', 'beginning', '--attempts', 'Infinity']
    expect(await json(...early)).toMatchObject([{ change: 'created', match: 'order.*', attempts: 0 }])
    await bus.run({ signals: false })
    await eventually(async () => (await bus.queues.get('early')).waiting === 1)
    expect((await bus.queues.list()).map(({ name }) => name)).toEqual(['billing', 'early', 'mail'])
  })

  test.each([
    [['--match', 'a..b'], 'error PATTERN_INVALID: '],
    [['--weight', 'acme'], 'Parameter "weight" must be a tenant and its items per turn, as in acme=3; got "acme".'],
    [['--weight', 'acme=-1'], '--weight acme must be a whole number from 0 to 1000; got -1'],
    [['--attempts', 'many'], 'Parameter "attempts" must be a whole number, or Infinity; got "many".'],
    [['--attempts', '0'], '--attempts must be a whole number from 1'],
    [['--backoff', '1s'], 'Parameter "backoff" must be two durations, as in 1s,5m; got "1s".'],
    [['--backoff', '5m,1s'], '--backoff must be the first wait and then the longest'],
    [['--lease', '1ms'], '--lease must be from 100ms to 1d; got'],
    [['--on-poison', 'park'], '--on-poison park sets objects aside, so it needs --ordered'],
    [['--on-poison', 'block'], 'Parameter "on-poison" must be skip or park; got "block".'],
    [['--in-flight', '0'], 'Parameter "in-flight" must be a whole number from 1 to 1000000000; got "0".'],
    [['--max-share', 'half'], 'Parameter "max-share" must be a number from 0.01 to 1, as in 0.5; got "half".'],
    [['--max-share', '2'], '--max-share must be from 0.01 to 1; got 2'],
    [['--rate', '100'], 'Parameter "rate" must be items and a time, as in 100/s or 5/10m; got "100".'],
    [['--rate-per-tenant', '5/yr'], 'Parameter "rate-per-tenant" must be items and a time'],
    [['--rate', '0/s'], 'the items of --rate must be a whole number from 1'],
    [['--overflow', 'dead'], '--overflow says what becomes of events beyond --backlog, so it needs that'],
    [['--rate-per-tenant', '1/2d'], 'the time of --rate-per-tenant must be from 1ms to 1d; got'],
    [['--from', 'yesterday'], 'Parameter "from" must be beginning, now, or a time'],
  ])('put %j is refused', async (options, said) => {
    const { bus, cli } = await place()
    const ended = await cli('queue', 'put', 'wrong', ...options)
    expect([ended.code, ended.stderr]).toEqual([2, expect.stringContaining(said)])
    expect((await bus.queues.list()).map(({ name }) => name)).toEqual(['mail'])
  })

  test('put says what it has taken away, and only that', async () => {
    const { cli } = await place()
    const put = async (...words: string[]) => (await cli('queue', 'put', 'mail', ...words)).stderr
    const all = ['--weight', 'acme=3', '--attempts', '8', '--in-flight', '5', '--backlog', '9', '--track', 'all']
    // What was there had two attempts.
    expect(await put(...all, '--redact', 'pin')).toMatch(/^No longer: backoff 10ms,10ms\. [^\n]*\n$/)
    expect(await put(...all, '--in-flight', '6')).toMatch(/^No longer: redact pin\. /)
    expect(await put(...all, '--in-flight', '6')).toBe('')
    const json = await cli('queue', 'put', 'mail', '--json', '--match', 'keep.*', '--track', 'all', '--redact', 'token')
    expect([json.code, jsonLines(json.stdout).length]).toEqual([0, 1])
    expect(jsonLines(json.stderr)).toEqual([
      {
        noLonger: [
          ...['weight acme=3', 'attempts 8', 'in-flight 6', 'backlog 9'],
          expect.stringMatching(/^redact password .* credentials$/),
        ],
      },
    ])
    const plain = await cli('queue', 'put', 'mail')
    expect([plain.code, plain.stderr]).toEqual([
      0,
      'No longer: match keep.*, track all. A definition is put as a whole: what is not said is as by default.\n',
    ])
    expect((await cli('queue', 'put', 'new')).stderr).toBe('')
  })

  test('what was meant', async () => {
    const { cli, namespace } = await place()
    const cases: [args: string[], code: number, said: string][] = [
      [
        ['queue', 'mial'],
        1,
        `There is no queue "mial" in namespace "${namespace}", or it was removed. Did you mean mail?`,
      ],
      [['queue', 'puase', 'mail'], 2, 'queue has no command "puase". (Did you mean busbar queue pause mail?)'],
      [['queue', 'mail', 'pause'], 2, 'queue has no command "mail". (Did you mean busbar queue pause mail?)'],
      [
        ['queue', 'zebra', 'mail'],
        2,
        'queue has no command "zebra". (There is put, pause, resume, parked, discard, rm.)',
      ],
      [
        ['queue', 'put', 'mail', '--ordered'],
        2,
        'queue "mail" is not ordered, and stays so: leave out --ordered, take',
      ],
      [['queue', 'pause', 'mail', '--tenant', 'a b'], 2, 'Parameter "tenant" must be of A-Z'],
      [['queue'], 2, "missing required argument 'name'"],
      [['queue', 'pause', 'mial'], 1, 'Did you mean mail?'],
      [['queue', 'mail', '--limit', '0'], 2, 'Parameter "limit" must be a whole number from 1 to 10000'],
      [['send', 'mial', '1'], 1, 'Did you mean mail?'],
      [['send', 'mail', '{a:1}'], 1, 'Event field "data" is not JSON: unexpected "a" at character 2. In a shell, put'],
      [['send', 'mail', '1', '--delay', 'soon'], 2, 'Parameter "delay" must be a duration'],
      [['send', 'mail', '1', '--priority', 'high'], 2, 'Parameter "priority" must be a whole number'],
      [['work', 'mial', '--', 'true'], 1, 'Did you mean mail?'],
      [['work', 'mail'], 2, "missing required argument 'command', as in: busbar work mail -- ./send-mail.sh\n"],
      [['work', 'mail', '--concurrency', 'x', '--', 'true'], 2, 'Parameter "concurrency" must be a whole number'],
      [['match', 'acme', 'a..b'], 2, 'Parameter "type" must be segments'],
      [['match', 'acme', 'a.b', '--name', 'mial'], 1, 'Did you mean mail?'],
    ]
    for (const [args, code, said] of cases) {
      const ended = await cli(...args)
      expect([args, ended.code, ended.stderr]).toEqual([args, code, expect.stringContaining(said)])
    }
  })

  test('[Q36] match says who would get it and why not', async () => {
    const { bus, cli, json } = await place({ match: 'order.*' })
    await bus.queues.put('acme', { match: 'acme:>' })
    await bus.queues.pause('mail')
    const table = (await cli('match', 'zebra', 'order.paid')).stdout
    expect(table).toMatch(
      /^name +kind +match +gets it +since +why\nacme +queue +acme:> +no +\S+Z +its pattern does not match\nmail +queue +order\.\* +yes +\S+Z +its pattern matches; paused since \S+Z, so nothing is given out\n$/,
    )
    await bus.queues.put('sent')
    const none = (await cli('match', 'zebra', 'mail.sent')).stdout
    expect(none).toMatch(/\nmail +queue +order\.\* +no +\S+Z +its pattern does not match\n/)
    expect(none).toMatch(/\nsent +queue +- +no +\S+Z +it has no pattern: it gets only what is sent\n$/)
    expect(await json('match', 'acme', 'mail.sent', '--name', 'acme')).toMatchObject([{ name: 'acme', matches: true }])
    const why = await cli('match', 'acme', 'mail.sent', '--name', 'mail')
    expect([why.code, why.stdout]).toEqual([
      1,
      expect.stringMatching(/mail +queue +order\.\* +no +\S+Z +its pattern does not match\n/),
    ])
  })
})

describe('[Q22] parked objects', () => {
  const parking = { ordered: true, onPoison: 'park', retry: { attempts: 1 } } as const

  /** Of each object the first of three items has failed. */
  async function parked(...objects: [tenant: string, key: string][]) {
    const ground = await place(parking)
    const { open } = ground
    for (const [tenant, key] of objects)
      for (const n of ['12345678901234567890.10', '2', '3']) await open.send(rawJson(n), { tenant, key })
    for (const item of (await open.claim({ max: 100 })).items) await item.retry(0, 'no such\u001b address')
    return ground
  }

  test('listed with why, since when and how many wait behind them, in columns; looked at byte for byte', async () => {
    const { cli, json, namespace } = await parked(['acme', 'order:42'], ['globex', 'a key'], ['acme', 'ключ'])
    const listed = await cli('queue', 'parked', 'mail')
    const lines = listed.stdout.split('\n').slice(0, -1)
    expect(lines[0]).toMatch(/^object +type +attempts +behind +since +error$/)
    expect(lines.slice(1).sort()).toEqual([
      expect.stringMatching(/^acme\/order:42 +mail +1 +2 +\S+Z {2}no such\\u001b address$/),
      expect.stringMatching(/^acme\/ключ +mail +1 +2 +\S+Z {2}no such\\u001b address$/),
      expect.stringMatching(/^globex\/a key +mail +1 +2 +\S+Z {2}no such\\u001b address$/),
    ])
    expect(new Set(lines.slice(1).map((line) => line.indexOf('no such')))).toEqual(
      new Set([lines[0]!.indexOf('error')]),
    )
    expect(listed.stderr).toMatch(
      new RegExp(
        `^\`.* queue resume mail --object \\S+ .*--namespace ${namespace}\` tries it anew, \`queue discard\` gives it up; --parked means all of them\\.\n$`,
      ),
    )
    const ofGlobex = await cli('queue', 'parked', 'mail', '--tenant', 'globex', '--json')
    expect(jsonLines(ofGlobex.stdout)).toMatchObject([
      { object: 'globex/a key', error: 'no such\u001b address', attempts: 1, behind: 2, event: { key: 'a key' } },
    ])
    expect(ofGlobex.stdout).toContain('"data":12345678901234567890.10}')
    expect((await cli('queue', 'parked', 'mail', '--tenant', 'nobody')).stderr).toBe(
      'Nothing of tenant nobody is parked.\n',
    )
    expect((await cli('queues')).stdout).toMatch(
      /^name +match +waiting +later +held +behind +parked +dead +oldest +paused\nmail +- +0 +0 +0 +6 +3 +0 +- +-\n$/,
    )
    const shown = await cli('queue', 'mail')
    expect(shown.stdout).toMatch(/\nheld +0\nbehind +6\nparked +3\ndead +0\n.*\nordered +yes\non poison +park\n\n/s)
    expect(shown.stdout).toMatch(/\ntenant .* later +behind +parked +dead +state\nacme +1 +0 +- +0 +0 +4 +2 +0 +-\n/)
    expect(shown.stderr).toMatch(/^3 objects are parked: `.* queue parked mail .*` shows why\.\n$/)
    expect((await json('queue', 'mail'))[0]).toMatchObject({ parked: 3, behind: 6 })
  })

  test('resumed: one by its name, those of a tenant, all', async () => {
    const { cli, json, facts, open } = await parked(['acme', 'a'], ['acme', 'b'], ['globex', 'a'], ['zebra', 'a'])
    expect((await cli('queue', 'resume', 'mail', '--object', 'acme/a')).stdout).toBe('1 object of mail goes on.\n')
    expect(await facts()).toMatchObject({ parked: 3, waiting: 1 })
    expect((await open.claim({ max: 9 })).items.map(({ event, attempt }) => [event.key, attempt])).toEqual([['a', 1]])
    expect((await cli('queue', 'resume', 'mail', '--object', 'b', '--tenant', 'acme')).code).toBe(0)
    expect(await json('queue', 'resume', 'mail', '--parked', '--tenant', 'zebra')).toEqual([
      { name: 'mail', objects: 1 },
    ])
    const whole = await cli('queue', 'resume', 'mail')
    expect([whole.stdout, whole.stderr]).toEqual([
      'mail goes on.\n',
      expect.stringMatching(/^1 object is parked: `.* queue parked mail .*` shows why\.\n$/),
    ])
    expect((await cli('queue', 'resume', 'mail', '--parked')).stdout).toBe('1 object of mail goes on.\n')
    expect(await facts()).toMatchObject({ parked: 0 })
    expect(await cli('queue', 'resume', 'mail', '--parked')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'Nothing is parked.\n',
    })
  })

  test('discarded with all behind them, not without a yes', async () => {
    const { cli, json, facts, flags } = await parked(['acme', 'a'], ['acme', 'b'], ['globex', 'a'])
    const asked = await cli('queue', 'discard', 'mail', '--object', 'acme/a')
    expect(asked).toEqual({
      ...{ code: 2, stdout: '' },
      stderr: `acme/a has 1 item that failed and 2 behind it.\nNothing was changed. Add --yes to give them up.\n`,
    })
    const onTerminal = (input: string) =>
      callCli(['queue', 'discard', 'mail', '--parked', '--tenant', 'acme', ...flags], { input, columns: 80 })
    const no = await onTerminal('n\n')
    expect([no.code, no.stderr]).toEqual([
      1,
      '2 objects have 2 items that failed and 4 behind them.\nGive them up? [y/N] Nothing was changed.\n',
    ])
    expect(await facts()).toMatchObject({ parked: 3, behind: 6 })
    expect((await onTerminal('y\n')).stdout).toBe('6 items given up.\n')
    expect(await json('queue', 'discard', 'mail', '--object', 'globex/a', '--yes')).toEqual([{ discarded: 3 }])
    expect(await facts()).toMatchObject({ parked: 0, behind: 0, discarded: 9 })
  })

  test('what was meant', async () => {
    const { bus, cli } = await parked(['acme', 'order:42'])
    await bus.queues.put('plain')
    const cases: [args: string, code: number, said: string][] = [
      [
        'queue resume mail --object order:42',
        1,
        '"order:42" is not parked. Objects are written tenant/key. Did you mean acme/order:42?',
      ],
      ['queue resume mail --object acme/order:43', 1, '"acme/order:43" is not parked. Did you mean acme/order:42?'],
      ['queue resume mail --object zebra/x', 1, ' queue parked mail --redis '],
      ['queue resume mail --object a/b --parked', 2, '"object" cannot be given together with --parked'],
      ['queue discard mail --object order:42 --yes', 1, 'Did you mean acme/order:42?'],
      [
        'queue discard mail',
        2,
        'Parameter "object" is missing: name one as `busbar queue parked` lists it, or give --parked',
      ],
      ['queue discard mail --tenant acme', 2, 'Parameter "object" is missing'],
      [
        'queue parked plain',
        0,
        'plain parks nothing: what fails for good is a dead letter. --ordered --on-poison park makes',
      ],
      ['queue resume mail --parked --tenant zebra', 0, 'Nothing of tenant zebra is parked.'],
      ['queue parked mial', 1, 'Did you mean mail?'],
      ['queue parkd mail', 2, 'Did you mean busbar queue parked mail?'],
      ['queue rm mail', 2, 'mail has 3 items: 0 waiting, 0 later, 0 held, 0 dead, 2 behind, 1 parked.'],
    ]
    for (const [line, code, said] of cases) {
      const ended = await cli(...line.split(' '))
      expect([line, ended.code, ended.stderr]).toEqual([line, code, expect.stringContaining(said)])
    }
    expect((await bus.queues.get('mail')).parked).toBe(1)
  })

  test('through the program itself: parked, resumed, given up', async () => {
    const { flags, facts } = await parked(['acme', 'order:42'])
    const run = (line: string) => runCli([...line.split(' '), ...flags])
    expect((await run('queue parked mail')).stdout).toContain('\nacme/order:42  mail')
    expect((await run('queue resume mail --object acme/order:42')).stdout).toBe('1 object of mail goes on.\n')
    expect((await run('queue resume mail --object acme/order:42')).code).toBe(1)
    expect((await run('queue discard mail --object acme/order:42 --yes')).code).toBe(1)
    expect(await facts()).toMatchObject({ waiting: 1, behind: 2, parked: 0 })
  })
})

describe('sending', () => {
  test('byte for byte, from the line or stdin, with all options', async () => {
    const { cli, json, open, flags } = await place()
    const big = '{"n": 12345678901234567890.10}'
    const options = [
      '--tenant',
      'acme',
      '--key',
      'mail:7',
      '--idempotency-key',
      'once',
      '--trace',
      't',
      '--priority',
      '-5',
    ]
    const [sent] = await json('send', 'mail', big, ...options)
    expect(sent).toEqual({ id: expect.stringMatching(/^mail\./), duplicate: false })
    expect((await cli('send', 'mail', big, ...options)).stdout).toBe(`id ${sent!.id}  (was there already)\n`)
    const piped = await callCli(['send', 'mail', '-', '--json', ...flags], { input: ` ${big}\n` })
    expect(piped.code).toBe(0)
    const later = (await cli('send', 'mail', '1', '--delay', '1h', '--ttl', '2h')).stdout
    expect(later).toMatch(/^id mail\.\S+ {2}due \S+Z\n$/)
    expect(Math.abs(Date.parse(later.split('due ')[1]!.trim()) - Date.now() - 3_600_000)).toBeLessThan(60_000)
    const { items } = await open.claim({ max: 10 })
    expect(items.map(({ event }) => event.json)).toEqual([big, big])
    expect(items[0]!.event).toMatchObject({ id: sent!.id, tenant: 'acme', key: 'mail:7', trace: 't' })
  })
})

describe('working', () => {
  test('[Q32] --drain works until nothing is left, events that nobody has routed yet too, then exits with 0', async () => {
    const { bus, open, script, noted, flags, facts } = await place({ match: 'order.*', ...quick })
    await open.send(1, { tenant: 'acme' })
    await open.send(2)
    await open.send('tomorrow', { delay: '1d' })
    for (const n of [3, 4, 5]) await bus.publish('order.paid', n, { key: `order:${n}` })
    // Nothing of the log is in the queue: no process runs.
    expect(await facts()).toMatchObject({ waiting: 2, in: 3 })
    const ended = await runCli([
      'work',
      'mail',
      '--drain',
      '--concurrency',
      '2',
      ...flags,
      ...script('note(String(item.event.data))'),
    ])
    expect([ended.code, noted().sort()]).toEqual([0, ['1', '2', '3', '4', '5']])
    expect(ended.stderr).toMatch(
      /1 item of mail left for a later time, the first at \S+Z\.\ndrained: 5 done, 0 failed, 0 dead\n$/,
    )
    expect(await facts()).toMatchObject({ waiting: 0, held: 0, dead: 0, later: 1, out: 5 })
  })

  test('[Q32] --drain waits for what is not routed yet, also when whoever should do it stands still', async () => {
    const { bus, script, noted, flags, facts } = await place({ match: 'order.*' })
    const router = startCli(['up', '--http-port', '0', ...flags])
    await router.waitForLine(/The log:/)
    await bus.publish('order.placed', 'before')
    await eventually(async () => (await facts()).waiting === 1)
    router.kill('SIGSTOP')
    for (const n of [1, 2, 3]) await bus.publish('order.paid', n)
    const ended = await runCli(['work', 'mail', '--drain', ...flags, ...script('note(String(item.event.data))')])
    expect([ended.code, noted().sort()]).toEqual([0, ['1', '2', '3', 'before']])
  })

  test('[Q32] --drain of an empty queue ends at once; of a paused one it says so, with 1', async () => {
    const { bus, open, script, flags, facts } = await place()
    expect(await runCli(['work', 'mail', '--drain', '--json', ...flags, ...script('')])).toEqual({
      ...{ code: 0, stderr: '' },
      stdout:
        '{"drained":true,"done":0,"failed":0,"dead":0,"parked":0,"left":[{"queue":"mail","waiting":0,"later":0,"dueAt":null,"behind":0,"parked":0,"paused":false}]}\n',
    })
    await open.send(1)
    await bus.queues.pause('mail')
    const paused = await runCli(['work', 'mail', '--drain', ...flags, ...script('')])
    expect([paused.code, paused.stderr]).toEqual([
      1,
      expect.stringContaining('1 item of mail cannot be given: it is paused.\ndrained: nothing could be given\n'),
    ])
    expect((await facts()).waiting).toBe(1)
  })

  test('[Q32] --drain waits for what someone else holds: it may come back', async () => {
    const { open, script, noted, flags, facts } = await place()
    await open.send(1)
    const { items } = await open.claim({ lease: '1s' })
    expect(items).toHaveLength(1)
    const ended = await runCli(['work', 'mail', '--drain', ...flags, ...script('note(String(item.attempt))')])
    expect([ended.code, noted(), await facts()]).toMatchObject([0, ['2'], { held: 0, out: 1 }])
  })

  test('the item comes as JSON, byte for byte; what the command prints is the result', async () => {
    const { bus, open, script, flags } = await place()
    const { id } = await open.send(rawJson('{"n": 12345678901234567890.10}'), { tenant: 'acme' })
    const { code, stdout } = await runCli([
      'work',
      'mail',
      '--drain',
      ...flags,
      ...script('process.stdout.write(text)'),
    ])
    const [claimed] = (await bus.queues.peek('mail')) as unknown[]
    expect([code, claimed]).toEqual([0, undefined])
    expect(stdout).toMatch(
      /^\{"queue":"mail","id":"mail\.[\w-]+","attempt":1,"enqueuedAt":\d+,"firstClaimedAt":\d+,"event":\{/,
    )
    expect(stdout).toContain('"data":{"n": 12345678901234567890.10}}')
    expect(JSON.parse(stdout)).toMatchObject({ id, event: { id, tenant: 'acme' } })
  })

  test('another exit code tries it again, and after the last attempt it is a dead letter that says so', async () => {
    const { bus, open, script, noted, flags } = await place({ retry: { attempts: 2, backoff: [0, 0] } })
    const { id } = await open.send(1)
    const ended = await runCli([
      'work',
      'mail',
      '--drain',
      ...flags,
      ...script('note(String(item.attempt)); process.exit(7)'),
    ])
    expect([ended.code, noted()]).toEqual([0, ['1', '2']])
    expect(ended.stderr).toContain('the command ended with exit code 7')
    expect(await bus.queues.dead.list('mail')).toMatchObject([
      { id, attempts: 2, error: 'Error: the command ended with exit code 7' },
    ])
  })

  test('[Q32] --drain ends with what became of the items, and where the dead ones are', async () => {
    const { open, script, flags } = await place({ retry: { attempts: 2, backoff: ['1h', '1h'] } })
    const work = (body: string) => runCli(['work', 'mail', '--drain', ...flags, ...script(body)])
    expect((await work('')).stderr).toMatch(/\ndrained: nothing was waiting\n$/)
    for (const n of [1, 2, 3]) await open.send(n)
    await open.send('bad')
    for (const item of (await open.claim({ max: 4 })).items) await item.retry(0)
    await open.send('later')
    const ended = await work('if (typeof item.event.data === "string") process.exit(1)')
    expect(ended.stderr).toMatch(
      /\ndrained: 3 done, 1 failed, 1 dead; `.* dead ls mail --redis \S+ --namespace \S+` shows why\n$/,
    )
    expect(ended.code).toBe(0)
  })

  test('[Q32] --drain waits for the rate of a tenant, and says what is parked', async () => {
    const { cli, open, script, flags, noted } = await place()
    await cli(...'queue put slow --rate-per-tenant 2/200ms'.split(' '))
    for (const n of [1, 2, 3, 4]) await cli('send', 'slow', String(n))
    const drained = await runCli(['work', 'slow', '--drain', ...flags, ...script('note(String(item.event.data))')])
    expect([drained.code, noted()]).toEqual([0, ['1', '2', '3', '4']])
    await cli(...'queue put orders --ordered --on-poison park --attempts 1'.split(' '))
    for (const n of [1, 2]) await cli('send', 'orders', String(n), '--key', 'order:1')
    await open.send('other')
    const ended = await runCli(['work', 'orders', '--drain', ...flags, ...script('process.exit(1)')])
    expect([ended.code, ended.stderr]).toEqual([0, expect.stringContaining('queue.parked')])
    expect(ended.stderr).not.toContain('queue.buried')
    expect(ended.stderr).toMatch(
      /\n1 object of orders is parked\.\n1 item of orders left behind another of the same object\.\ndrained: 0 done, 0 failed, 0 dead, 1 parked; `.* queue parked orders --redis \S+ --namespace \S+` shows why\n$/,
    )
  })

  test('[Q32] --drain counts an item that failed first and is done then as done', async () => {
    const { open, script, flags } = await place({ retry: { attempts: 3, backoff: [0, 0] } })
    await open.send(1)
    const words = ['work', 'mail', '--drain', '--json', ...flags, ...script('process.exit(item.attempt === 1 ? 1 : 0)')]
    expect(jsonLines((await runCli(words)).stdout)).toMatchObject([{ drained: true, done: 1, failed: 0, dead: 0 }])
  })

  test('a command that takes too long is ended, with what it has started, and tried again', async () => {
    const { bus, open, script, noted, flags } = await place({ retry: { attempts: 1 } })
    await open.send(1)
    const [, , inner] = script('setInterval(() => note("on"), 50)')
    const outer = `import { spawn } from 'node:child_process'
spawn(process.execPath, [${JSON.stringify(inner)}], { stdio: ['pipe', 'inherit', 'inherit'] }).stdin.end(text)
setInterval(() => undefined, 1_000)`
    const ended = await runCli(['work', 'mail', '--drain', '--timeout', '1s', ...flags, ...script(outer)])
    const { length } = noted()
    expect([ended.code, length > 1]).toEqual([0, true])
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(noted()).toHaveLength(length)
    expect(await bus.queues.dead.reasons('mail')).toMatchObject([
      { reason: 'Error: the handler took longer than 1000 ms', letters: 1 },
    ])
  })

  test('a command that cannot be started costs no item an attempt', async () => {
    const { open, flags, facts, folder } = await place({ retry: { attempts: 1 } })
    await open.send(1)
    // It is there, but what should run it is not.
    const file = join(folder, 'send-mail.sh')
    writeFileSync(file, '#!/no/such/shell\n', { mode: 0o755 })
    const ended = await runCli(['work', 'mail', ...flags, '--', file])
    expect([ended.code, ended.stderr]).toEqual([
      2,
      expect.stringContaining(`"command" cannot be started (ENOENT); got "${file}"`),
    ])
    expect(await facts()).toMatchObject({ waiting: 1, held: 0, dead: 0 })
    expect((await open.claim()).items).toMatchObject([{ attempt: 1 }])
  })

  test.each([
    ['./no-such-command', 'ENOENT'],
    ['no-such-command', 'ENOENT'],
    ['/etc/passwd', 'EACCES'],
    ['/tmp', 'EACCES'],
  ])('%s is refused also when nothing is due', async (file, code) => {
    const { cli } = await place()
    const ended = await cli('work', 'mail', '--drain', '--', file)
    expect([ended.code, ended.stderr]).toEqual([
      2,
      `error PARAMETER_INVALID: Parameter "command" cannot be started (${code}); got "${file}".\n`,
    ])
  })

  test('SIGTERM: what runs ends, what has not begun goes back at once, exit code 0', async () => {
    const { open, script, noted, flags, facts } = await place()
    for (const n of [1, 2, 3, 4, 5]) await open.send(n)
    const body = 'note("begun"); setTimeout(() => note("done"), 500)'
    const child = startCli(['work', 'mail', '--concurrency', '4', ...flags, ...script(body)])
    await eventually(() => noted().length === 4)
    child.kill('SIGTERM')
    expect(await child.exited).toEqual({ code: 0, signal: null })
    expect(noted().filter((line) => line === 'done')).toHaveLength(4)
    expect(await facts()).toMatchObject({ waiting: 1, held: 0, later: 0, out: 4 })
    expect((await open.claim()).items).toMatchObject([{ attempt: 1 }])
  })

  test('SIGTERM: what does not end in the grace goes back, as if never tried, and does not go on', async () => {
    const { open, script, noted, flags, facts } = await place()
    await open.send(1)
    const body = 'process.on("SIGTERM", () => {}); note("begun"); setInterval(() => note("on"), 50)'
    const child = startCli(['work', 'mail', '--grace', '200ms', ...flags, ...script(body)])
    await eventually(() => noted().length > 2)
    child.kill('SIGTERM')
    const asked = performance.now()
    expect(await child.exited).toEqual({ code: 0, signal: null })
    // Not only once it had time to listen to its own SIGTERM: its item is someone else's by then.
    expect(performance.now() - asked).toBeLessThan(1_900)
    expect(await facts()).toMatchObject({ waiting: 1, held: 0, later: 0, out: 0 })
    const { length } = noted()
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(noted()).toHaveLength(length)
    expect((await open.claim()).items).toMatchObject([{ attempt: 1 }])
  })

  test('asked to end twice it ends at once, and nothing of its commands goes on', async () => {
    const { open, script, noted, flags } = await place()
    await open.send(1)
    const child = startCli(['work', 'mail', '--grace', '1m', ...flags, ...script('setInterval(() => note("on"), 50)')])
    await eventually(() => noted().length > 2)
    child.kill('SIGINT')
    await new Promise((resolve) => setTimeout(resolve, 350)) // a second Ctrl-C, and not the same heard twice
    child.kill('SIGINT')
    expect(await child.exited).toEqual({ code: 130, signal: null })
    const { length } = noted()
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(noted()).toHaveLength(length)
  })
})

describe('worker --drain', () => {
  const app = (queue: string) => `import { busbar } from 'busbar'
export const bus = busbar({ redis: process.env.APP_REDIS, namespace: process.env.APP_NAMESPACE })
${queue}`

  test('[Q32] works off what was published before the queue existed, and what its handlers publish, then exits with 0', async () => {
    const { bus, namespace, noted, folder } = await place()
    const events = Array.from({ length: 1_500 }, (_, n) => ({ type: 'order.placed', data: n, key: `order:${n % 50}` }))
    await bus.publishAll(events.slice(0, 1_000))
    await bus.publishAll(events.slice(1_000))
    const notes = join(folder, 'notes.txt')
    writeFileSync(
      join(folder, 'app.ts'),
      app(`import { appendFileSync } from 'node:fs'
const orders = bus.queue('orders', { match: 'order.*', from: 'beginning' })
orders.work(async ({ type, data }) => {
  appendFileSync(${JSON.stringify(notes)}, type + ' ' + JSON.stringify(data) + '\\n')
  if (type === 'order.placed' && data % 500 === 0) await bus.publish('order.paid', data)
  if (type === 'order.paid') await bus.publish('order.shipped', data)
}, { concurrency: 20 })`),
    )
    const ended = await runCli(['worker', join(folder, 'app.ts'), '--drain'], {
      env: { APP_REDIS: redisUrl(), APP_NAMESPACE: namespace },
    })
    expect([ended.code, ended.stderr]).toEqual([0, ''])
    const count = (type: string) => noted().filter((line) => line.startsWith(type)).length
    expect([count('order.placed'), count('order.paid'), count('order.shipped')]).toEqual([1_500, 3, 3])
    expect(await bus.queues.get('orders')).toMatchObject({ waiting: 0, held: 0, later: 0, out: 1_506 })
  })

  test('[Q32] says what is left for later; with --json too', async () => {
    const { bus, namespace, folder, open } = await place()
    await open.send(1, { delay: '1h' })
    writeFileSync(join(folder, 'app.ts'), app(`bus.queue('mail', ${JSON.stringify(quick)}).work(() => undefined)`))
    const ended = await runCli(['worker', join(folder, 'app.ts'), '--drain', '--json'], {
      env: { APP_REDIS: redisUrl(), APP_NAMESPACE: namespace },
    })
    expect(ended.code).toBe(0)
    expect(jsonLines(ended.stdout)).toContainEqual({
      drained: true,
      left: [{ queue: 'mail', waiting: 0, later: 1, dueAt: expect.any(Number), behind: 0, parked: 0, paused: false }],
    })
    expect((await bus.queues.get('mail')).later).toBe(1)
  })
})
