/** Where webhooks may go, and that nothing is dialled elsewhere: through each way in, with a resolver and a dialler that only take notes. */
import { connect as connectTcp, Socket } from 'node:net'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { BusbarError } from '../../src/errors.ts'
import { type Dial, dialSocket } from '../../src/sinks/webhook/dial.ts'
import { Guard, type GuardOptions, type Resolve } from '../../src/sinks/webhook/guard.ts'
import { Poster } from '../../src/sinks/webhook/post.ts'
import { eventually } from '../support/eventually.ts'
import { loopbacks, ok, posterOf, receiver, recordingDial, requestTo, resolverOf, saying } from './receivers.ts'
import {
  carriersOf,
  disguisesOf,
  namesInside,
  notationsOf,
  publicIPv4,
  publicIPv6,
  refusedIPv4,
  refusedIPv6,
  samples,
} from './targets.ts'

const aPublicAddress = '8.8.8.8'

/** A guard that can look up and dial, as far as it knows. */
function watched(answers: (hostname: string) => string[] = () => [aPublicAddress], options: GuardOptions = {}) {
  const { dialled, dial } = recordingDial()
  const { asked, resolve } = resolverOf(answers)
  const guard = new Guard({ allowHttp: true, resolve, dial, ...options })
  const poster = new Poster({ guard })
  onTestFinished(() => poster.close())
  return { guard, poster, dialled, asked }
}

const codeOf = (run: () => unknown): string => {
  try {
    run()
    return 'nothing was thrown'
  } catch (error) {
    return (error as BusbarError).code
  }
}
const refusal = { code: 'WEBHOOK_URL_REFUSED' }
const messageOf = (guard: Guard, url: unknown): string => {
  try {
    return `accepted ${guard.checkUrl(url)}`
  } catch (error) {
    return (error as Error).message
  }
}

/** What a connector answers that was never asked for the URL. */
const connected = (guard: Guard, hostname: string, port = '') =>
  new Promise<string>((resolve) => {
    guard.connect({ protocol: 'https:', hostname, port }, (...[error]) =>
      resolve(error ? (error as BusbarError).code : 'connected'),
    )
  })

const refusedAddresses = refusedIPv4.flatMap(samples)
const literals = [
  ...refusedAddresses.flatMap((address) =>
    [...notationsOf(address), ...carriersOf(address)].map((host) => `https://${host}/hook`),
  ),
  ...refusedIPv6.map((address) => `https://[${address}]/hook`),
  ...['127.0.0.1', '2130706433', '0x7f.1', '[::1]', '[::ffff:7f00:1]', '169.254.169.254'].flatMap(disguisesOf),
  ...[
    'https://[fe80::1%25eth0]/',
    'https://[fe80::1%eth0]/',
    'https://[::1%25lo]/',
    'https://127.1/',
    'https://0/',
    'https://0x7f.1/',
  ],
  ...namesInside.map((name) => `https://${name}/`),
]
const targets = [...new Set(literals)]

describe('targets that are refused', () => {
  test('[W15] every notation of every address that is not public: refused by each way in, nothing is dialled or looked up', async () => {
    expect(targets.length).toBeGreaterThan(1_500)
    const { guard, poster, dialled, asked } = watched()
    const wrong: string[] = []
    for (const url of targets) {
      if (codeOf(() => guard.checkUrl(url)) !== refusal.code) wrong.push(`checkUrl ${url}`)
      await guard.checkTarget(url).then(
        () => wrong.push(`checkTarget ${url}`),
        (error) => expect(error, url).toMatchObject(refusal),
      )
      const posted = await poster.post(requestTo(url))
      if (posted.kind !== 'failed' || !posted.problem.startsWith('refused: ')) wrong.push(`post ${url}`)
    }
    expect(wrong).toEqual([])
    expect(dialled).toEqual([])
    expect(asked).toEqual([])
  })

  test('[W15] the connector alone refuses them too: addresses, names, ports, plain http', async () => {
    const { guard, dialled, asked } = watched(() => [aPublicAddress], { allowHttp: false })
    for (const host of [...refusedAddresses, ...refusedIPv6, 'localhost', 'localhost.', 'db.internal'])
      expect(await connected(guard, host), host).toBe(refusal.code)
    expect(await connected(guard, aPublicAddress, '6379')).toBe(refusal.code)
    const plain = new Promise((resolve) =>
      guard.connect({ protocol: 'http:', hostname: aPublicAddress, port: '' }, (...[error]) => resolve(error)),
    )
    expect(await plain).toMatchObject(refusal)
    expect(dialled).toEqual([])
    expect(asked).toEqual([])
  })

  test('[W15] names of which one answer is refused, alone or among others, and answers that are no addresses', async () => {
    const odd = ['', '127.1', '0x7f000001', '2130706433', 'localhost', 'fe80::1%eth0', '2606:4700::1%lo', '8.8.8.8 ']
    const bad = [...refusedAddresses, ...refusedIPv6, ...odd]
    const shapes = (address: string) => [
      ...[[address], [aPublicAddress, address], [address, aPublicAddress], [...publicIPv6, aPublicAddress, address]],
    ]
    const answers = new Map(bad.flatMap(shapes).map((answer, n) => [`host-${n}.example.com`, answer]))
    const { guard, poster, dialled } = watched((name) => answers.get(name)!)
    for (const name of answers.keys()) {
      const url = `https://${name}/hook`
      guard.checkUrl(url)
      await expect(guard.checkTarget(url), name).rejects.toMatchObject(refusal)
      const posted = await poster.post(requestTo(url))
      expect(posted, name).toMatchObject({
        kind: 'failed',
        problem: expect.stringMatching(/^refused: "host-\d+\.example\.com" leads to /),
      })
    }
    expect(answers.size).toBeGreaterThan(350)
    expect(dialled).toEqual([])
  })

  test('[W15] 1,000 rebindings: a name that is public when it is checked and private when it is dialled', async () => {
    let turn = 0
    const isPublic = () => turn % 2 === 1
    const { guard, poster, dialled, asked } = watched(() => {
      turn += 1
      return [
        isPublic() ? `93.184.${turn % 256}.${1 + (turn >> 8)}` : refusedAddresses[turn % refusedAddresses.length]!,
      ]
    })
    const url = 'https://rebinding.example.com/hook'
    const expected: string[] = []
    for (let n = 0; n < 1_000; n += 1) {
      // Odd rounds have the private answer at the check, even ones where it is dialled.
      if (n % 2 === 1) turn += 1
      const checked = await guard.checkTarget(url).then(
        () => 'public',
        () => 'refused',
      )
      expect(checked).toBe(isPublic() ? 'public' : 'refused')
      const posted = await poster.post(requestTo(url))
      if (isPublic()) expected.push(`93.184.${turn % 256}.${1 + (turn >> 8)}`)
      expect(posted).toMatchObject({
        kind: 'failed',
        problem: isPublic()
          ? 'connection refused'
          : expect.stringContaining('refused: "rebinding.example.com" leads to '),
      })
    }
    // Each connection asks once, and what it was told is what it dials.
    expect(asked.length).toBe(2_000)
    expect(dialled.map(({ address }) => address)).toEqual(expected)
    expect(expected.length).toBe(500)
    expect(new Set(dialled.map(({ servername, port }) => `${servername}:${port}`))).toEqual(
      new Set(['rebinding.example.com:443']),
    )
  })

  test('[W15] a socket that ends up elsewhere is cut before anything is sent, TLS or not', async () => {
    let heard = 0
    const elsewhere = await receiver((socket) => socket.on('data', () => (heard += 1)))
    const astray: Dial = (to) => dialSocket({ ...to, address: '127.0.0.1', port: elsewhere.port })
    const poster = posterOf({}, { allow: [], dial: astray, resolve: resolverOf(() => [aPublicAddress]).resolve })
    for (const scheme of ['http', 'https'])
      expect(await poster.post(requestTo(`${scheme}://moved.example.com/`))).toMatchObject({
        problem: 'refused: "moved.example.com" leads to a loopback address',
      })
    await eventually(() => elsewhere.accepted() === 2 && elsewhere.open.size === 0)
    expect(heard).toBe(0)
  })

  test('[W15] a redirect leads nowhere: it is the answer', async () => {
    const { dialled, dial } = recordingDial()
    const redirecting = await receiver(
      saying('HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n'),
    )
    const poster = posterOf(
      {},
      { dial: (to) => (to.port === redirecting.port ? connectTcp(to.port, to.address) : dial(to)) },
    )
    expect(await poster.post(requestTo(redirecting.url))).toMatchObject({ kind: 'answered', status: 302 })
    expect(redirecting.accepted()).toBe(1)
    expect(dialled).toEqual([])
  })
})

describe('targets that are accepted', () => {
  test('[W15] public addresses in every notation are dialled as what they are, so the rules can tell them apart', async () => {
    const { guard, poster, dialled } = watched()
    for (const address of publicIPv4)
      for (const host of notationsOf(address)) {
        const url = `https://${host}/hook`
        guard.checkUrl(url)
        await guard.checkTarget(url)
        expect(await poster.post(requestTo(url)), url).toMatchObject({ problem: 'connection refused' })
        const { address: dialledAddress, servername } = dialled.pop()!
        const isMapped = host.startsWith('[')
        if (isMapped) expect(dialledAddress).toMatch(/^::ffff:/)
        else expect(dialledAddress).toBe(address)
        expect(servername).toBeUndefined()
      }
    for (const address of publicIPv6) {
      expect(await poster.post(requestTo(`https://[${address}]:8443/`))).toMatchObject({
        problem: 'connection refused',
      })
      expect(dialled.pop()).toMatchObject({
        address: new URL(`https://[${address}]`).hostname.slice(1, -1),
        port: 8443,
      })
    }
  })

  test('[W15] the canary: with the allow-list loopback is reached, by address and by name; without it nobody comes', async () => {
    const canary = await receiver(saying(ok))
    const { resolve } = resolverOf(() => ['127.0.0.1'])
    const strict = posterOf({}, { allow: [], resolve })
    const allowed = posterOf({}, { resolve })
    const hosts = ['127.0.0.1', 'localhost', 'hooks.example.com', '2130706433', '[::ffff:127.0.0.1]']
    for (const host of hosts) {
      const url = `http://${host}:${canary.port}/hook`
      const refused = await strict.post(requestTo(url))
      expect(refused, url).toMatchObject({ kind: 'failed', problem: expect.stringContaining('refused: ') })
    }
    expect(canary.accepted()).toBe(0)
    for (const host of hosts)
      expect(await allowed.post(requestTo(`http://${host}:${canary.port}/hook`)), host).toMatchObject({
        ...{ kind: 'answered', status: 200, excerpt: 'ok' },
      })
    // The number is the first host: its connection was still there.
    expect(canary.accepted()).toBe(hosts.length - 1)
  })

  test('[W15] the allow-list opens its networks and nothing beside them; a name inside a network leads only there', async () => {
    const answers: Record<string, string[]> = {
      'receiver.internal': ['10.1.2.3'],
      'other.internal': ['10.1.3.3'],
      'public.internal': [aPublicAddress],
      'half.internal': ['10.1.2.3', aPublicAddress],
    }
    const { guard, poster, dialled } = watched((name) => answers[name]!, { allow: ['10.1.2.0/24', 'fd00:1::/32'] })
    guard.checkUrl('https://10.1.2.255/')
    guard.checkUrl('https://[::ffff:10.1.2.3]/')
    guard.checkUrl('https://[fd00:1::9]/')
    for (const host of [
      '10.1.3.0',
      '127.0.0.1',
      '169.254.169.254',
      '[fd00:2::9]',
      '[64:ff9b::a01:203]',
      '[::10.1.2.3]',
    ])
      expect(() => guard.checkUrl(`https://${host}/`), host).toThrow('is refused')
    await guard.checkTarget('https://receiver.internal/')
    for (const name of ['other', 'public', 'half'])
      await expect(guard.checkTarget(`https://${name}.internal/`), name).rejects.toMatchObject(refusal)
    await poster.post(requestTo('https://receiver.internal/'))
    await poster.post(requestTo('https://half.internal/'))
    expect(dialled.map(({ address }) => address)).toEqual(['10.1.2.3'])
    expect(guard.allow).toEqual(['10.1.2.0/24', 'fd00:1::/32'])
  })

  test('[W15] no proxy of the environment is asked', async () => {
    let asked = 0
    const proxy = await receiver((socket) => {
      asked += 1
      socket.destroy()
    })
    const names = ['http_proxy', 'HTTP_PROXY', 'https_proxy', 'HTTPS_PROXY', 'ALL_PROXY', 'NODE_USE_ENV_PROXY']
    for (const name of names) vi.stubEnv(name, name.startsWith('NODE') ? '1' : `http://127.0.0.1:${proxy.port}`)
    onTestFinished(() => void vi.unstubAllEnvs())
    const canary = await receiver(saying(ok))
    const poster = posterOf()
    expect(await poster.post(requestTo(canary.url))).toMatchObject({ status: 200 })
    expect(await poster.post(requestTo(canary.url.replace('http:', 'https:')))).toMatchObject({ kind: 'failed' })
    expect(asked).toBe(0)
  })

  test('addresses are tried in turns of their family, only those that were answered, and four at most', async () => {
    const { poster, dialled } = watched(() => [...publicIPv4, ...publicIPv6])
    expect(await poster.post(requestTo('https://many.example.com/'))).toMatchObject({ problem: 'connection refused' })
    expect(dialled.map(({ address }) => address)).toEqual([publicIPv4[0], publicIPv6[0], publicIPv4[1], publicIPv6[1]])
  })

  test('an address that leads nowhere is left for the next one', async () => {
    const canary = await receiver(saying(ok))
    const dial: Dial = ({ address, port }) => (address === '127.0.0.9' ? new Socket() : connectTcp(port, address))
    const poster = posterOf({}, { dial, resolve: resolverOf(() => ['127.0.0.9', '127.0.0.1']).resolve })
    expect(await poster.post(requestTo(`http://two.example.com:${canary.port}/`))).toMatchObject({ status: 200 })
  })
})

describe('what is said', () => {
  test('each refusal says why and what to do, and shows no credentials, path or query', () => {
    const guard = new Guard()
    const said = (url: unknown) => messageOf(guard, url)
    expect(said('https://10.0.0.1/secret-path?secret-query')).toBe(
      'Webhook URL "https://10.0.0.1" is refused: 10.0.0.1 is a private address. Use a public address, or allow its network where this server is started.',
    )
    expect(said('http://example.com/')).toBe(
      'Webhook URL "http://example.com" is refused: it is not https. Use https, or allow http where this server is started.',
    )
    expect(said('ftp://example.com/')).toContain('its scheme is "ftp". Use https.')
    expect(said('https://me:secret@example.com/')).toBe(
      'Webhook URL "https://example.com" is refused: it has a user name or a password. Give them as a header of the subscription.',
    )
    expect(said('https://example.com:5432/')).toContain('port 5432 is not for webhooks')
    expect(said('https://example.com./')).toContain('"example.com." ends with a dot. Leave the dot out.')
    expect(said('https://localhost/')).toContain('"localhost" is a name inside a network')
    expect(said('https://[::1]/')).toContain('::1 is a loopback address')
    expect(said('https://[64:ff9b::1]/')).toContain('64:ff9b::1 is a NAT64 address')
    expect(said('https://168.63.129.16/')).toContain('an address of the cloud platform')
    expect(said('hooks.example.com/secret')).toContain('Webhook URL "hooks.example.com" is refused: it is not a URL.')
    expect(said('hooks.example.com?secret')).toContain('"hooks.example.com"')
    expect(said(undefined)).toContain('Webhook URL undefined is refused: it is not a text.')
    expect(said(`https://example.com/${'x'.repeat(3_000)}`)).toContain('it is longer than 2048 characters')
    for (const broken of [
      'https://me:secret@exa mple.com/secret',
      'https://me:secret@[::1/secret',
      'https://me:secret@x\\secret',
    ])
      expect(said(broken), broken).toMatch(
        /is refused: it (is not a URL|has a space, a backslash or a control character)/,
      )
    const all = [
      'https://me:secret@exa mple.com/secret',
      'https://me:secret@[::1/secret',
      'https://me:secret@10.0.0.1/secret',
    ].map(said)
    expect(all.join()).not.toContain('secret')
  })

  test('ports: 80, 443 and above 1023 but for those of other services; or exactly those that are named', () => {
    const { guard } = watched()
    const { guard: narrow } = watched(undefined, { ports: [443, 6379] })
    const accepts = (guard: Guard, port: number) =>
      codeOf(() => guard.checkUrl(`https://example.com:${port}/`)) === 'nothing was thrown'
    expect([80, 443, 1024, 8080, 8443, 50_000, 65_535].filter((port) => !accepts(guard, port))).toEqual([])
    expect([0, 1, 22, 25, 53, 81, 445, 1023, 5432, 6379, 11211, 27017].filter((port) => accepts(guard, port))).toEqual(
      [],
    )
    expect([80, 443, 6379, 8443].filter((port) => accepts(narrow, port))).toEqual([443, 6379])
  })

  test('a name without an address is another error, and may be tried again', async () => {
    const fail = (code: string): GuardOptions => ({
      resolve: (_name, _options, callback) => callback(Object.assign(new Error(code), { code }), []),
    })
    const { guard } = watched(undefined, fail('ENOTFOUND'))
    await expect(guard.checkTarget('https://nobody.example.com/')).rejects.toMatchObject({
      ...{ code: 'WEBHOOK_HOST_UNRESOLVED', retryable: true },
      message:
        'No address is known of webhook host nobody.example.com: there is no such name. Check the name, or try again later.',
    })
    const posted = (options: GuardOptions) =>
      watched(undefined, options).poster.post(requestTo('https://nobody.example.com/'))
    expect(await posted(fail('ENOTFOUND'))).toMatchObject({ problem: 'name not resolved: there is no such name' })
    expect(await posted(fail('EAI_AGAIN'))).toMatchObject({
      problem: 'name not resolved: the name server does not answer',
    })
    const empty = resolverOf(() => [])
    expect(await posted({ resolve: empty.resolve })).toMatchObject({ problem: 'name not resolved: it has no address' })
  })

  test('connections that begin together look a name up once', async () => {
    const waiting: (() => void)[] = []
    const { asked, resolve } = resolverOf(() => [aPublicAddress])
    const slow: Resolve = (...args) => void waiting.push(() => resolve(...args))
    const { poster, dialled } = watched(undefined, { resolve: slow })
    const posts = [1, 2, 3].map(() => poster.post(requestTo('https://slow.example.com/')))
    expect(waiting.length).toBe(1)
    for (const answer of waiting) answer()
    await Promise.all(posts)
    expect(asked.length).toBe(1)
    expect(dialled.length).toBe(3)
  })

  test('an allow-list of anything but networks is refused, all of it at once', () => {
    expect(() => new Guard({ allow: ['127.0.0.0/8', 'localhost', '10.0.0.1', '10/8', '1.2.3.4/33', ''] })).toThrow(
      expect.objectContaining({
        code: 'SETTING_INVALID',
        details: { problems: expect.objectContaining({ length: 5 }) },
      }),
    )
    expect(new Guard({ allow: loopbacks }).allow).toEqual(loopbacks)
  })
})
