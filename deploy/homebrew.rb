# The formula of a release, for a tap. `make formula` writes build/leftoff.rb, with @VERSION@ and @SHA256@ those of the
# source archive in dist/; the release puts that file into the tap as Formula/leftoff.rb.
class Leftoff < Formula
  desc "LLM server that picks up every prompt where it left off"
  homepage "https://pypi.org/project/leftoff/"
  url "https://files.pythonhosted.org/packages/source/l/leftoff/leftoff-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "Apache-2.0"

  # On Linux, wheels look for libgomp where the system has it, not Homebrew: pip or uv is the way there.
  depends_on :macos
  depends_on "python@3.13"

  # llama.cpp comes as a wheel, pinned to one version by leftoff: nothing is compiled.
  def install
    system "python3.13", "-m", "venv", libexec
    system libexec/"bin/pip", "install", "--no-cache-dir", buildpath
    bin.install_symlink libexec/"bin/leftoff"
  end

  service do
    run [opt_bin/"leftoff", "serve"]
    keep_alive crashed: true
    log_path var/"log/leftoff.log"
    error_log_path var/"log/leftoff.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/leftoff --version")
    assert_match "exactly", shell_output("#{bin}/leftoff engine check")
  end
end
