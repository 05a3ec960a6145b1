/** `busbar up`: says what runs, serves, shares its Redis, and ends as it was asked to. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { callCli, jsonLines, runCli, startCli } from './support/cli.ts'
import { eventually } from './support/eventually.ts'
import type { Child } from './support/process.ts'
import { startReceiver, toLoopback } from './support/receiver.ts'

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'busbar-up-'))
  onTestFinished(() => rmSync(made, { recursive: true, force: true }))
  return made
}

/** Whether anything in a data folder still listens: the keeper and its Redis. */
const sockets = (dataDir: string): string[] =>
  readdirSync(join(dataDir, 'redis')).filter((name) => name.endsWith('.sock'))

async function urlOf(up: Child): Promise<string> {
  const line = await up.waitForLine(/^ {2}HTTP /)
  await up.waitForLine(/http\.started/)
  return line.split(/ +/)[2]!
}

describe('with an embedded Redis', () => {
  test('[H14] it serves, shares its Redis with other commands, and leaves nothing behind', async () => {
    const dataDir = folder()
    const up = startCli(['up', '--data-dir', dataDir, '--http-port', '0'])
    const url = await urlOf(up)
    const screen = up.stdout.join('\n')
    expect(screen).toContain(`\n  Redis      embedded, ${join(dataDir, 'redis/redis.sock')}\n`)
    expect(screen).toContain('\n  Namespace  busbar, 16 partitions\n')
    expect(screen).toContain(`\n  Data       ${dataDir}\n`)
    expect(screen).toContain(`\n  Token      ${dataDir}/root-token\n`)
    const token = readFileSync(join(dataDir, 'root-token'), 'utf8').trim()
    expect(screen).not.toContain(token)
    expect(statSync(join(dataDir, 'root-token')).mode & 0o777).toBe(0o600)

    // What it says to try next works as it is typed, apart from where the program is.
    const [publish, tail, put] = screen.match(/ (publish|tail|queue) .*/g)!.map((command) => command.trim())
    expect(publish).toBe(`publish order.paid '{"total":42}' --key order:42 --data-dir ${dataDir}`)
    const words = (command: string) => command.split(' ').map((word) => word.replaceAll("'", ''))
    expect((await runCli(words(publish!))).code).toBe(0)
    const curl = screen.slice(screen.indexOf('curl')).split('\n\n')[0]!
    expect(curl).toContain(`-H "Authorization: Bearer $(cat ${dataDir}/root-token)"`)
    const posted = await fetch(/curl (\S+)/.exec(curl)![1]!, {
      method: 'POST',
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      body: / -d '(.*)'/.exec(curl)![1]!,
    })
    expect(posted.status).toBe(201)
    const tailed = await callCli([...words(tail!), '--limit', '2', '--json'])
    expect(jsonLines(tailed.stdout)).toMatchObject([{ data: { total: 42 } }, { data: { total: 43 } }])
    expect((await runCli(words(put!))).stdout).toMatch(/^billing is created\.\nmatch +order\.\*\n/)
    const billing = async () => jsonLines((await callCli(['queue', 'billing', '--json', '--data-dir', dataDir])).stdout)
    await eventually(async () => (await billing())[0]!.waiting === 2)
    expect((await fetch(`${url}/readyz`)).status).toBe(200)

    up.kill('SIGTERM')
    expect(await up.exited).toEqual({ code: 0, signal: null })
    await eventually(() => sockets(dataDir).length === 0, { what: 'The end of the embedded Redis' })
    expect(up.stdout.join('\n')).toMatch(/info +redis\.embedded-stopped/)
    const after = await callCli(['topics', '--data-dir', dataDir], { env: { PATH: process.env.PATH! } })
    expect(after).toEqual({ code: 0, stdout: 'topic  events\norder       2\n', stderr: '' })
    await eventually(() => sockets(dataDir).length === 0, { what: 'The end of the Redis of a short command' })
  })
})

describe('with a Redis of its own', () => {
  const place = () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace })
    return { bus, args: ['up', '--redis', redisUrl(), '--namespace', namespace, '--data-dir', folder()] }
  }

  test('--json prints JSON lines only, the first one says what runs; a second one on its port is refused', async () => {
    const { args, bus } = place()
    const up = startCli([...args, '--http-port', '0', '--json', '--partitions', '4'])
    const first = JSON.parse(await up.waitForLine(/"event":"up"/))
    expect(first).toMatchObject({
      ...{ event: 'up', level: 'info', namespace: bus.namespace, partitions: 4, redis: redisUrl(), pid: up.pid },
      ...{ url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/), tokenFile: expect.stringMatching(/root-token$/) },
    })
    const { port } = new URL(first.url)
    const second = await runCli([...args, '--http-port', port])
    expect(second).toMatchObject({ code: 2, stdout: '' })
    expect(second.stderr).toMatch(
      new RegExp(`^error SETTING_INVALID: A setting is not usable:\n  - http.port ${port} `),
    )

    up.kill('SIGINT')
    expect(await up.exited).toEqual({ code: 0, signal: null })
    const events = up.stdout.map((line) => JSON.parse(line).event)
    // It listens first: one that is refused for its port has done nothing.
    expect(events.filter((event) => !event.startsWith('leader.'))).toEqual([
      'up',
      'http.started',
      'bus.started',
      'bus.closed',
    ])
    expect(up.stderr).toEqual([])
  })

  test('Redis that does not answer ends it with 3', async () => {
    const args = ['up', '--redis', 'redis://127.0.0.1:1', '--publish-timeout', '200ms', '--data-dir', folder()]
    const ended = await callCli(args)
    expect(ended.code).toBe(3)
    expect(ended.stderr).toContain('error REDIS_UNAVAILABLE: ')
    expect(ended.stdout).toMatch(/warn +redis\.lost .*ECONNREFUSED/)
  })

  test('asked to end it finishes what it has begun; asked twice it ends at once', async () => {
    const { args, bus } = place()
    const body = JSON.stringify({ type: 'late.event', data: 1 })
    /** Sends a request but for the end of its body. */
    const begin = async (up: Child, dataDir: string) => {
      const { port } = new URL(await urlOf(up))
      const token = readFileSync(join(dataDir, 'root-token'), 'utf8').trim()
      const socket = connect(Number(port), '127.0.0.1')
      onTestFinished(() => void socket.destroy())
      let answer = ''
      socket.setEncoding('utf8').on('data', (text) => {
        answer += text
      })
      socket.on('error', () => {})
      const head = [
        'POST /v1/events HTTP/1.1',
        'Host: x',
        `Authorization: Bearer ${token}`,
        'Content-Type: application/json',
      ]
      socket.write([...head, `Content-Length: ${body.length}`, 'Expect: 100-continue', '', ''].join('\r\n'))
      // Only when it asks for the body is the request surely being handled.
      await eventually(() => answer.includes('100 Continue'))
      socket.write(body.slice(0, 5))
      return { finish: () => socket.write(body.slice(5)), answer: () => answer }
    }
    const dataDir = args.at(-1)!
    const patient = startCli([...args, '--http-port', '0'])
    const request = await begin(patient, dataDir)
    // Under npm it hears one Ctrl-C twice.
    patient.kill('SIGINT')
    patient.kill('SIGTERM')
    await eventually(() => patient.stderr.some((line) => line.startsWith('Stopping')))
    request.finish()
    expect(await patient.exited).toEqual({ code: 0, signal: null })
    expect(request.answer()).toContain('HTTP/1.1 201 Created')
    expect([...(await bus.topics())]).toEqual([['late', 1]])

    const impatient = startCli([...args, '--http-port', '0'])
    await begin(impatient, dataDir)
    impatient.kill('SIGTERM')
    await eventually(() => impatient.stderr.some((line) => line.startsWith('Stopping')))
    await sleep(300) // it is a time that is waited for
    impatient.kill('SIGTERM')
    expect(await impatient.exited).toEqual({ code: 130, signal: null })
    expect(impatient.stdout.join('\n')).not.toContain('bus.closed')
  })
})

describe('webhooks', () => {
  async function place() {
    const namespace = freshNamespace()
    const bus = testBus({ namespace, webhooks: toLoopback })
    const server = await startReceiver()
    await bus.webhooks.put('erp', { url: server.url, match: 'order.*', batch: { maxWait: 0 } })
    const up = (...flags: string[]) =>
      startCli([
        'up',
        '--redis',
        redisUrl(),
        '--namespace',
        namespace,
        '--data-dir',
        folder(),
        '--http-port',
        '0',
        ...flags,
      ])
    return { bus, server, up }
  }
  const said = /^Development: webhooks may go to this machine\.$/

  test('it posts those of the namespace; in development to this machine, and says so', async () => {
    const { bus, server, up } = await place()
    const running = up('--webhooks-development')
    await running.waitForLine(said)
    const { id } = await bus.publish('order.paid', { total: 42 }, { key: 'order:42' })
    await eventually(() => server.received.length === 1)
    expect(JSON.parse(server.received[0]!.body)).toMatchObject({ subscription: 'erp', events: [{ id }] })
    await eventually(async () => (await bus.webhooks.get('erp')).delivered === 1)
  })

  test('by itself it dials nothing here, and the attempt says why', async () => {
    const { bus, server, up } = await place()
    const running = up()
    await running.waitForLine(/http\.started/)
    expect(running.stdout.filter((line) => said.test(line))).toEqual([])
    await bus.publish('order.paid', 1)
    await eventually(async () => (await bus.webhooks.attempts('erp')).length > 0)
    expect((await bus.webhooks.attempts('erp')).at(-1)).toMatchObject({ problem: 'refused: it is not https' })
    expect(server.received).toEqual([])
  })

  test('npm start turns the development on', () => {
    const { scripts } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
    expect(scripts.start).toMatch(/ up --webhooks-development$/)
  })
})
