/** Webhooks on the command line: made, looked at, stopped, tested, signed anew, replayed, redriven. */
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { publicKeyOf } from '../src/webhook-signature.ts'
import { appFolder } from './support/app.ts'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { callCli, jsonLines, runCli, startCli } from './support/cli.ts'
import { eventually } from './support/eventually.ts'
import { startReceiver, toLoopback } from './support/receiver.ts'

/** A namespace with an endpoint on this machine; `cli` is allowed to reach it. */
async function place() {
  const namespace = freshNamespace()
  const bus = testBus({ namespace, webhooks: { ...toLoopback, dispatch: true } })
  const server = await startReceiver()
  const flags = ['--redis', redisUrl(), '--namespace', namespace]
  const cli = (...args: string[]) => callCli(['webhooks', ...args, ...flags, '--webhooks-development'])
  const json = async (...args: string[]) => jsonLines((await cli(...args, '--json')).stdout)
  const put = (...more: string[]) => cli('put', 'erp', '--url', server.url, '--match', 'order.>', ...more)
  const facts = () => bus.webhooks.get('erp')
  return { namespace, bus, server, flags, cli, json, put, facts }
}

const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`
const quick = ['--max-wait', '0', '--backoff', '10ms,20ms', '--attempts', '2']

describe('put', () => {
  test('makes a webhook with all that it was told, changes it, and says what it is', async () => {
    const { namespace, server, flags, put, facts, bus } = await place()
    const all = [
      ...[
        '--match',
        'acme:mail.*',
        '--from',
        'beginning',
        '--max-events',
        '7',
        '--max-wait',
        '2s',
        '--max-bytes',
        '64kB',
      ],
      ...['--backoff', 'ladder', '--give-up-after', '2d', '--attempts', '9', '--format', 'cloudevents-batch'],
      ...['--parallel', '4', '--header', 'X-Shop: the-shop', '--header', 'x-two:a: b', '--secret', secret],
      ...['--basic', 'the-user', '--timeout', '5s', '--disable-after', '1d', '--keep', '500'],
    ]
    const made = await runCli(
      ['webhooks', 'put', 'erp', '--url', server.url, '--match', 'order.>', ...all, ...flags, '--webhooks-development'],
      {},
    )
    expect(made.code).toBe(0)
    expect(made.stdout.split('\n')).toEqual([
      'erp is created.',
      `url        ${server.url}`,
      'match      order.>, acme:mail.*',
      'format     cloudevents-batch',
      'batch      7 events, 2s, 64kB',
      'retry      by the ladder, 5s to 24h, given up after 2d or 9 attempts',
      'parallel   4 sequences',
      'timeout    5s',
      'disabled   after 1d without a good attempt',
      'keeps      500 events',
      'headers    x-shop, x-two',
      'basic      yes',
      '',
    ])
    expect(made.stderr).toMatch(/webhooks secret erp .*shows the secret that its requests are signed with/)
    expect(made.stderr).toContain(
      `Nothing runs in namespace ${namespace}: what is published reaches no queue and no webhook`,
    )
    expect(made.stdout + made.stderr).not.toMatch(/the-(shop|user)|whsec_/)
    expect(await facts()).toMatchObject({
      ...{ match: ['order.>', 'acme:mail.*'], maxEvents: 7, maxWaitMs: 2_000, maxBytes: 64_000, backoffMs: 'ladder' },
      ...{ giveUpAfterMs: 172_800_000, maxAttempts: 9, parallel: 4, timeoutMs: 5_000, disableAfterMs: 86_400_000 },
      ...{ keepEvents: 500, headers: ['x-shop', 'x-two'], basic: true },
    })
    expect(await bus.webhooks.secrets('erp')).toEqual([secret])
    expect((await put(...all)).stdout).toMatch(/^erp is as it was\.\n/)
    const [changed] = jsonLines((await put('--parallel', '4', '--json')).stdout)
    expect(changed).toMatchObject({ change: 'changed', name: 'erp', match: 'order.>', maxEvents: 100, headers: [] })
    expect(await bus.webhooks.secrets('erp')).toEqual([secret])
    const back = await put(...all)
    expect([back.code, back.stderr]).toEqual([3, expect.stringContaining('`busbar webhooks put --force`')])
    expect((await put(...all, '--force')).code).toBe(0)
  })

  test.each([
    [['--max-events', '0'], 'must be a whole number from 1'],
    [['--max-events', '5000'], '--max-events must be a whole number from 1 to 1000; got 5000'],
    [['--max-wait', 'soon'], '--max-wait must be a duration'],
    [['--max-bytes', '2MiB'], '--max-bytes must be from 1KiB to 1MiB'],
    [['--backoff', '1s'], 'must be two durations, as in 1s,5m'],
    [['--backoff', 'ladder'], '--backoff: ladder waits for up to a day'],
    [['--backoff', 'ladder'], 'it needs --parallel'],
    [['--give-up-after', '0'], '--give-up-after must be from'],
    [['--disable-after', 'x'], '--disable-after must be a duration'],
    [['--format', 'xml'], '--format must be one of busbar, '],
    [['--header', 'no-colon'], "as in 'x-shop: 42'"],
    [['--header', 'host: a.b'], '"host" is set by Busbar'],
    [['--secret', 'secret'], '"whsec_" and base64'],
    [['--from', 'yesterday'], 'must be beginning, now, or a time'],
    [['--url', 'ftp://127.0.0.1/'], 'its scheme is "ftp"'],
  ])('%j is refused with 2, in the words of the command line', async (args, said) => {
    const { put, bus } = await place()
    const { code, stderr } = await put(...args)
    expect([code, stderr]).toEqual([2, expect.stringContaining(said)])
    expect(await bus.webhooks.list()).toEqual([])
  })

  test('what must be said is asked for; without leave nothing goes to this machine, and it is said what gives it', async () => {
    const { cli, flags, server } = await place()
    expect(await cli('put', 'erp', '--url', server.url)).toMatchObject({
      ...{ code: 2, stderr: expect.stringContaining("required option '--match <pattern>' not specified") },
    })
    const refused = await callCli(['webhooks', 'put', 'erp', '--url', server.url, '--match', '>', ...flags])
    expect(refused.code).toBe(2)
    expect(refused.stderr).toMatch(
      /--webhooks-development allows this machine and http.*\nerror WEBHOOK_URL_REFUSED: .*it is not https/,
    )
    const asJson = await callCli(['webhooks', 'put', 'erp', '--url', server.url, '--match', '>', ...flags, '--json'])
    expect(jsonLines(asJson.stderr)).toMatchObject([{ error: { code: 'WEBHOOK_URL_REFUSED' } }])
    const within = [...flags, '--webhooks-allow', '127.0.0.0/8', '--webhooks-allow-http']
    expect((await callCli(['webhooks', 'put', 'erp', '--url', server.url, '--match', '>', ...within])).code).toBe(0)
  })
})

describe('looking', () => {
  test('none, and all of them', async () => {
    const { cli, json, put, server, bus } = await place()
    expect((await cli()).stderr).toMatch(
      /^There is no webhook in namespace .*\n`.* webhooks put erp --url https:\S+ --match 'order\.>'/,
    )
    await put(...quick)
    const table = await cli()
    expect(table.stdout.split('\n')).toEqual([
      `name  state   ${'url'.padEnd(server.url.length)}  backlog  delivered  dead  last good`,
      `erp   active  ${server.url}        0          0     0  -`,
      '',
    ])
    expect(table.stderr).toContain('reaches no queue and no webhook until a process does')
    expect(await json()).toEqual(await bus.webhooks.list())
    const narrow = await callCli(['webhooks', '--redis', redisUrl(), '--namespace', bus.namespace], { columns: 80 })
    expect(narrow.stdout).toContain('erp')
    expect((await cli('erp')).stderr).toContain('Did you mean busbar webhooks show erp?')
    expect(await cli('show', 'erq')).toMatchObject({ code: 1, stderr: expect.stringContaining('Did you mean erp?') })
  })

  test('one: its facts, open and sealed batches, last attempts under each other', async () => {
    const { cli, json, put, bus, server, facts } = await place()
    server.otherwise = (response) => response.writeHead(500).end('broken\u001b[31m')
    await put('--max-wait', '0', '--max-events', '1', '--backoff', '1h,1h', '--parallel', '1')
    await bus.run({ signals: false })
    for (const n of [1, 2]) await bus.publish('order.paid', { n }, { key: 'order:1' })
    await eventually(async () => (await facts()).failures === 1 && (await facts()).backlog === 2)
    const { stdout } = await cli('show', 'erp')
    const [first, batches, attempts] = stdout.split('\n\n')
    expect(first).toMatch(
      /^name +erp\nstate +failing: since \S+Z, 1 attempt failed in a row\nbacklog +2 events\nin +2\ndelivered +0\n/,
    )
    expect(first).toMatch(/\ndead letters {2}0\n.*\nattempts {6}1\n/)
    expect(batches).toMatch(/^batch +state +sequence +events +bytes +attempts +since +until +by\n/)
    expect(batches).toMatch(/\n\S{20} +retrying +0 +1 +\d+ +1 +\S+Z +\S+Z +-(\n|$)/)
    expect(batches).toMatch(/\n\S{20} +waiting +0 +1 +\d+ +0 +\S+Z +- +-/)
    expect(attempts).toMatch(/^time +batch +attempt +events +answer +took +outcome +excerpt\n/)
    expect(attempts).toMatch(/\n\S+Z +\S{20} +1 +1 +500 +\d+ms +failed, again in \S+ +broken \[31m\n$/)
    expect(stdout).not.toContain('\u001b')
    const [whole] = await json('show', 'erp', '--attempts', '1', '--batches', '1')
    expect(whole).toMatchObject({
      name: 'erp',
      failures: 1,
      open: [],
      lastAttempts: [{ status: 500, outcome: 'failed' }],
    })
    expect(whole!.sealed).toHaveLength(1)
  })

  test('an open batch is shown with its deadline, a held one with who posts it', async () => {
    const { cli, json, put, bus, facts } = await place()
    await put('--max-wait', '1h')
    await bus.run({ signals: false })
    await bus.publish('order.paid', 1)
    await eventually(async () => (await facts()).backlog === 1)
    expect((await cli('show', 'erp')).stdout).toMatch(/\n- +open +0 +1 +\d+ +0 +\S+Z +\S+Z +-\n/)
    const [{ open }] = (await json('show', 'erp')) as unknown as [{ open: { dueAt: number; openedAt: number }[] }]
    expect(open[0]!.dueAt - open[0]!.openedAt).toBe(3_600_000)
  })
})

describe('acting', () => {
  test('pause, resume, test, secret, rotate, remove', async () => {
    const { cli, json, put, bus, server, facts, flags } = await place()
    await put('--secret', secret, ...quick)
    expect((await cli('pause', 'erp')).stdout).toBe('erp is paused.\n')
    expect((await facts()).state).toBe('paused')
    expect(await json('resume', 'erp')).toEqual([{ name: 'erp', paused: false }])
    expect((await facts()).state).toBe('active')

    expect((await cli('test', 'erp')).stdout).toMatch(/^erp answered 204 within \d+ ms\n$/)
    server.otherwise = 500
    const failed = await cli('test', 'erp')
    expect([failed.code, failed.stdout]).toEqual([
      1,
      expect.stringMatching(/^erp answered 500 within \d+ ms: answer 500\n$/),
    ])
    expect(await json('test', 'erp')).toMatchObject([{ ok: false, status: 500, excerpt: 'answer 500' }])
    expect(server.received).toHaveLength(3)

    expect((await cli('secret', 'erp')).stdout).toBe(`${secret}\n`)
    const rotated = await cli('rotate', 'erp', '--overlap', '1h')
    const fresh = rotated.stdout.trim()
    expect(fresh).toMatch(/^whsec_\S+$/)
    expect(rotated.stderr).toBe('erp signs with it from now on; the one before goes on being used for 1h.\n')
    expect(await json('secret', 'erp')).toEqual([{ name: 'erp', secrets: [fresh, secret] }])
    expect(await json('rotate', 'erp', '--secret', secret, '--overlap', '0')).toEqual([{ name: 'erp', secret }])
    expect((await cli('rotate', 'erp', '--overlap', 'soon')).code).toBe(2)
    // From stdin, where nobody else sees it; receivers of an ed25519 key are given the public one.
    const key = `whsk_${Buffer.alloc(32, 5).toString('base64')}`
    const fromStdin = (...args: string[]) =>
      callCli(['webhooks', ...args, '--secret', '-', ...flags, '--webhooks-development'], { input: `${key}\n` })
    expect((await fromStdin('rotate', 'erp', '--overlap', '0')).stdout).toBe(`${key}\n`)
    expect((await fromStdin('put', 'erp', '--url', server.url, '--match', 'order.>')).code).toBe(0)
    const shown = await cli('secret', 'erp')
    expect(shown.stdout).toBe(`${key}\n`)
    expect(shown.stderr).toBe(`Receivers verify with its public key: ${publicKeyOf(key)}\n`)
    expect(await json('secret', 'erp')).toEqual([{ name: 'erp', secrets: [key], publicKeys: [publicKeyOf(key)] }])

    await cli('pause', 'erp')
    await bus.run({ signals: false })
    await bus.publish('order.paid', 1)
    await eventually(async () => (await facts()).backlog === 1)
    const kept = await cli('remove', 'erp')
    expect([kept.code, kept.stderr]).toEqual([
      2,
      expect.stringContaining('erp has 1 event waiting and 0 batches given up.'),
    ])
    expect((await cli('remove', 'erp', '--yes')).stdout).toBe('erp is removed.\n')
    expect((await cli('remove', 'erp', '--yes')).code).toBe(1)
  })

  test('a test that the settings do not allow says what would', async () => {
    const { put, flags, server } = await place()
    await put()
    const refused = await callCli(['webhooks', 'test', 'erp', ...flags])
    expect(refused).toMatchObject({
      code: 1,
      stdout: 'erp was not asked: this process may not post there, it is not https\n',
    })
    expect(refused.stderr).toContain('--webhooks-development allows this machine')
    expect(server.received).toEqual([])
  })

  test('what was given up is listed among the dead letters, redriven and discarded', async () => {
    const { cli, json, put, bus, server, facts, flags } = await place()
    const dead = (...args: string[]) => callCli(['dead', ...args, ...flags])
    server.otherwise = 500
    await put('--max-events', '1', ...quick)
    await bus.run({ signals: false })
    for (const n of [1, 2, 3]) await bus.publish('order.paid', { n })
    await eventually(async () => (await facts()).letters === 3)
    expect((await dead()).stdout).toMatch(/^name +kind +dead\nerp +webhook +3\n$/)
    const listed = (await dead('ls', 'erp')).stdout
    expect(listed).toMatch(
      /^id +events +attempts +sealed +since +error\n(\S{20} +1 +2 +\S+Z +\S+Z +it answered 500\n){3}$/,
    )
    const letters = jsonLines((await dead('ls', 'erp', '--kind', 'webhook', '--json')).stdout)
    expect(letters).toMatchObject([{ events: 1, event: { data: { events: [{ data: { n: 1 } }] } } }, {}, {}])
    expect((await cli('show', 'erp')).stderr).toMatch(/3 batches given up: `.* dead ls erp .*` shows why\./)

    expect(await cli('redrive', 'erp')).toMatchObject({ code: 2, stderr: expect.stringContaining('is missing') })
    server.otherwise = 200
    expect((await cli('redrive', 'erp', letters[0]!.id as string)).stdout).toBe('1 dead letter back in line.\n')
    await eventually(async () => (await facts()).delivered === 1)
    expect(await json('redrive', 'erp', '--reason', '500', '--before', '2020-01-01')).toEqual([{ redriven: 0 }])
    expect((await cli('discard', 'erp', 'nosuch')).code).toBe(1)
    expect(await json('discard', 'erp', '--all')).toEqual([{ discarded: 2 }])
    expect((await dead()).stderr).toBe('There are no dead letters.\n')
    expect(await cli('redrive', 'erq', '--all')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no webhook "erq"'),
    })
    expect(await dead('ls', 'erq')).toMatchObject({ code: 1, stderr: expect.stringContaining('Did you mean erp?') })
  })

  test('a time is replayed, in a process, with its progress on a terminal', async () => {
    const { cli, json, put, bus, server, facts, flags } = await place()
    await put('--max-wait', '0')
    await bus.run({ signals: false })
    await bus.publishAll(Array.from({ length: 30 }, (_, n) => ({ type: 'order.paid', data: n, key: `order:${n}` })))
    await eventually(async () => (await facts()).delivered === 30)
    const hourAgo = new Date(Date.now() - 3_600_000).toISOString()
    expect((await cli('replay', 'erp', '--since', hourAgo)).stdout).toBe('30 events in line again.\n')
    await eventually(async () => (await facts()).delivered === 60)
    expect(await json('replay', 'erp', '--since', '0', '--until', hourAgo)).toEqual([{ name: 'erp', events: 0 }])
    const seen = await callCli(['webhooks', 'replay', 'erp', '--since', '0', ...flags, '--webhooks-development'], {
      columns: 80,
    })
    expect(seen.stderr).toMatch(/\d+ events? in line again/)
    expect((await cli('replay', 'erp')).stderr).toContain("required option '--since <time>' not specified")
    expect(await cli('replay', 'erp', '--since', 'soon')).toMatchObject({ code: 2 })
    const ids = server.received.flatMap(({ body }) => JSON.parse(body).events.map(({ id }: { id: string }) => id))
    expect(new Set(ids).size).toBe(30)
  })

  test('busbar match knows a webhook, also one that is paused', async () => {
    const { put, flags, cli } = await place()
    await put()
    await cli('pause', 'erp')
    const matched = await callCli(['match', 'acme', 'order.paid', ...flags])
    expect(matched.stdout).toMatch(/\nerp +webhook +order\.> +yes +\S+Z +its pattern matches; paused since \S+Z/)
  })

  test('busbar worker posts if its application declares a webhook', async () => {
    const { bus, namespace, server } = await place()
    const options = JSON.stringify({ redis: redisUrl(), namespace, webhooks: { development: true } })
    const webhook = JSON.stringify({ url: server.url, match: 'order.>', batch: { maxWait: 0 } })
    const folder = appFolder({
      'app.ts': `import { busbar } from 'busbar'\nexport const bus = busbar(${options})\nbus.webhook('erp', ${webhook})`,
    })
    const worker = startCli(['worker', join(folder, 'app.ts')])
    await worker.waitForLine(/^ {2}Runs {7}erp$/)
    await worker.waitForLine(/^Ctrl-C stops it/)
    const { id } = await bus.publish('order.paid', 1)
    await eventually(() => server.received.some(({ body }) => body.includes(id)))
    const flagged = await runCli(['worker', join(folder, 'app.ts'), '--webhooks-development'])
    expect(flagged).toMatchObject({
      ...{ code: 2, stderr: expect.stringContaining('busbar({ webhooks: { development: … } })') },
    })
  })
})
